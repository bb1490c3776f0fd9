"""Scales of the operands of additions: small multiples of one unit, hardly coarser than before."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import pytest

from torq_byoc.quantize.add_scales import share_add_units
from torq_byoc.quantize.parameters import TensorQuantization

ADD = onnx.helper.make_node("Add", ["a", "b"], ["y"])


def parameters(scale: float, zero_point: int = -20, dtype: str = "int8") -> TensorQuantization:
    return TensorQuantization(np.float32(scale), zero_point, dtype)


def shared(first: float, second: float, **makers: onnx.NodeProto) -> dict[str, TensorQuantization]:
    found = {"a": parameters(first), "b": parameters(second), "y": parameters(1.0)}
    return share_add_units([ADD], found, makers.get)


@pytest.mark.parametrize("seed", range(30))
def test_the_ratio_is_one_of_small_integers_and_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = np.exp(rng.normal(-3, 4)) * np.array([1, rng.uniform(0.2, 5)])
    after = shared(first, second)
    ratio = Fraction(float(after["a"].scale)) / Fraction(float(after["b"].scale))
    assert ratio.numerator <= 127 and ratio.denominator <= 127
    largest = np.float32(max(first, second))
    for name, before in (("a", np.float32(first)), ("b", np.float32(second))):
        grown = float(after[name].scale) - float(before)
        assert 0 <= grown <= largest / 126
        if before == largest:
            assert grown <= 3.1e-5 * largest


def test_ranges_stay_covered() -> None:
    for zero_point in (-128, -127, -3, 0, 126, 127):
        found = {"a": parameters(0.3), "b": parameters(0.1, zero_point), "y": parameters(1.0)}
        after = share_add_units([ADD], found, {}.get)["b"]
        low, high = (-128 - zero_point) * 0.1, (127 - zero_point) * 0.1
        scale = float(after.scale)
        assert (-128 - after.zero_point) * scale <= low + scale / 2
        assert (127 - after.zero_point) * scale >= high - scale / 2
        assert -128 <= after.zero_point <= 127


def test_scales_that_follow_others_or_are_far_apart_stay() -> None:
    pool = onnx.helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[1, 1])
    table = onnx.helper.make_node("Sigmoid", ["x"], ["b"])
    for after in (shared(0.3, 0.1, a=pool), shared(0.3, 0.1, b=table), shared(10.0, 0.3)):
        assert {float(after["a"].scale), float(after["b"].scale)} <= {float(np.float32(s)) for s in (0.3, 0.1, 10.0)}


def test_a_tensor_of_several_additions_and_int16() -> None:
    other = onnx.helper.make_node("Sub", ["y", "a"], ["z"])
    found = {name: parameters(scale, 0, "int16") for name, scale in (("a", 0.3), ("b", 0.17), ("y", 0.11), ("z", 0.4))}
    after = share_add_units([ADD, other], found, {}.get)
    assert all(quantization.zero_point == 0 and quantization.dtype == "int16" for quantization in after.values())
    for names in (("a", "b"), ("a", "y")):
        ratio = Fraction(float(after[names[0]].scale)) / Fraction(float(after[names[1]].scale))
        assert max(ratio.numerator, ratio.denominator) <= 127
