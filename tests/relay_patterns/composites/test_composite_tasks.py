"""Every node of every composite as slice tasks on the simulated machine: what the reference says, to the bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, check_on_slices
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import activation, divide, layer_norm, log_softmax, lrn, prelu, softmax
from torq_byoc.relay_patterns.composites.float_activation import RECIPES
from torq_byoc.relay_patterns.quant_params import QuantParams

RNG = np.random.default_rng(2)
INT8, INT16 = DType.INT8, DType.INT16
OUT = QuantParams(1 / 128, -20, INT8)
SOURCE = QuantParams(0.05, 6, INT8)
SHAPE = (2, 5, 3, 9)


def reals(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    values = RNG.normal(0, 4, shape)
    values.reshape(-1)[:4] = (0.0, -40.0, 1e4, -1e-3)
    return values.astype(BF16)


def codes(dtype: DType = INT8, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    low, high = dtype.integer_range
    values = RNG.integers(low, high + 1, shape)
    values.reshape(-1)[:2] = (low, high)
    return values.astype(dtype.numpy)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_bf16_activations(name: str):
    values = np.abs(reals()) if name in ("log", "sqrt", "rsqrt") else reals()
    attributes = {"pow": {"exponent": 0.75}, "clip": {"low": -1.0, "high": 2.0}}.get(name, {})
    check_on_slices(
        [np.abs(values) if name == "pow" else values],
        [None],
        lambda b, x: activation.lower(b, x, name, None, "node", **attributes),
    )


@pytest.mark.parametrize("name", ["sigmoid", "relu", "clip", "abs", "neg"])
@pytest.mark.parametrize("dtype", [INT8, DType.UINT8, INT16])
def test_integer_activations(name: str, dtype: DType):
    attributes = {"low": -0.5, "high": 1.0} if name == "clip" else {}
    source = QuantParams(0.05 if dtype.size == 1 else 2e-4, 6, dtype)
    check_on_slices([codes(dtype)], [source], lambda b, x: activation.lower(b, x, name, OUT, "node", **attributes))


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("dtype", [INT8, INT16])
def test_integer_softmax(axis: int, dtype: DType):
    source = QuantParams(0.05 if dtype.size == 1 else 3e-4, 6, dtype)
    for out in (OUT, QuantParams(2.0**-15, 0, INT16)):
        check_on_slices([codes(dtype)], [source], lambda b, x, out=out: softmax.lower(b, x, axis, out, "node"))


def test_long_softmax():
    check_on_slices([codes(INT8, (3, 300))], [SOURCE], lambda b, x: softmax.lower(b, x, 1, OUT, "node"))


FLOAT = {
    "softmax": partial(softmax.lower, axis=1, out=None, origin="node"),
    "softmax last": partial(softmax.lower, axis=-1, out=None, origin="node"),
    "log softmax": partial(log_softmax.lower, axis=-1, origin="node"),
    "lrn": partial(lrn.lower, lrn=lrn.Lrn(3, 0.1), out=None, origin="node"),
    "prelu": partial(prelu.lower, slopes=RNG.uniform(-1, 2, (5, 1, 1)), out=None, origin="node"),
    "norm": partial(
        layer_norm.lower,
        norm=layer_norm.Norm(2, RNG.normal(1, 0.3, (5, 1, 1)), RNG.normal(0, 1, (5, 1, 1))),
        out=None,
        origin="node",
    ),
}
INTEGER = {
    "lrn narrow": partial(lrn.lower, lrn=lrn.Lrn(5), out=OUT, origin="node"),
    "lrn wide": partial(lrn.lower, lrn=lrn.Lrn(4, 2.0), out=OUT, origin="node"),
    "prelu": partial(prelu.lower, slopes=RNG.uniform(-1, 2, (5, 1, 1)), out=OUT, origin="node"),
    "norm": partial(layer_norm.lower, norm=layer_norm.Norm(1), out=OUT, origin="node"),
}


@pytest.mark.parametrize("name", sorted(FLOAT))
def test_float_composites(name: str):
    check_on_slices([RNG.normal(0, 2, SHAPE).astype(BF16)], [None], FLOAT[name])


@pytest.mark.parametrize("name", sorted(INTEGER))
def test_integer_composites(name: str):
    check_on_slices([codes()], [SOURCE], INTEGER[name])


def test_division():
    shapes = ((4, 1, 6), (1, 5, 1))
    check_on_slices(
        [codes(INT8, shapes[0]), codes(INT8, shapes[1])],
        [SOURCE, SOURCE],
        lambda b, x, y: divide.lower(b, x, y, OUT, "node"),
    )
    check_on_slices(
        [reals(shapes[0]), reals(shapes[1])], [None, None], lambda b, x, y: divide.lower(b, x, y, None, "node")
    )
