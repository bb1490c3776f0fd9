"""The probe of onnxruntime's integer kernels sees saturation and sees exactness."""

from __future__ import annotations

import numpy as np

from torq_byoc.report import environment


def _saturating(op: str, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pairs of products added in 16 bits with saturation, as vpmaddubsw does."""
    if op == "ConvInteger":
        flat = _saturating("MatMulInteger", data.reshape(256, 8).T, weights.reshape(16, 256).T)
        return flat.T.reshape(1, 16, 8, 1)
    products = data.astype(np.int64)[:, :, None] * weights.astype(np.int64)[None]
    pairs = products[:, 0::2] + products[:, 1::2]
    return np.clip(pairs, -32768, 32767).sum(axis=1)


def _exact(op: str, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    if op == "ConvInteger":
        return _exact("", data.reshape(256, 8).T, weights.reshape(16, 256).T).T.reshape(1, 16, 8, 1)
    return data.astype(np.int64) @ weights.astype(np.int64)


def test_saturation_is_noticed(monkeypatch):
    monkeypatch.setattr(environment, "_integer_result", _saturating)
    assert not environment.u8s8_is_exact()


def test_saturation_in_convolutions_alone_is_noticed(monkeypatch):
    monkeypatch.setattr(
        environment, "_integer_result", lambda op, *rest: (_saturating if op == "ConvInteger" else _exact)(op, *rest)
    )
    assert not environment.u8s8_is_exact()


def test_exactness_is_acknowledged(monkeypatch):
    monkeypatch.setattr(environment, "_integer_result", _exact)
    assert environment.u8s8_is_exact()


def test_onnxruntime_that_does_not_load_is_a_warning(monkeypatch):
    def broken() -> bool:
        raise ImportError("libonnxruntime.so: cannot open shared object file")

    monkeypatch.setattr(environment, "u8s8_is_exact", broken)
    found = environment.examine()
    check = next(check for check in found["checks"] if check["name"] == "onnxruntime")
    assert check["status"] == "warning" and found["healthy"]
    assert found["float_reference"] == "onnx.reference"
