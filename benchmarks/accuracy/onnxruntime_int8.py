"""What onnxruntime's static quantization makes of a model: the best of its calibrators."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

from torq_byoc.quantize.judge import Judge, Score

CALIBRATORS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


def best_score(model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]], judge: Judge) -> tuple[str, Score]:
    """The calibrator whose model is nearest to the float one, and how near.

    Its integer kernels play no part: the QDQ model is evaluated in float64, as ours are.

    Args:
        model: float ONNX.
        feeds: calibration samples.
        judge: of the float model, on evaluation samples.
    """
    scores = {name: judge.of(quantized(model, feeds, name)) for name in CALIBRATORS}
    return max(scores.items(), key=lambda pair: pair[1].merit)


def quantized(model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]], calibrator: str) -> onnx.ModelProto:
    """QDQ with int8 activations and int8 weights, a scale for every channel of the weights."""
    with tempfile.TemporaryDirectory() as folder, _silence():
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, source)
        quantize_static(
            source,
            target,
            _Feeds(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CALIBRATORS[calibrator],
        )
        return onnx.load(target)


class _Feeds(CalibrationDataReader):  # type: ignore[misc]
    """Hands out samples one by one."""

    def __init__(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
        self._rest: Iterator[Mapping[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """The next sample, None after the last."""
        return next(self._rest, None)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Without its messages about preprocessing, and what its calibrators print."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
