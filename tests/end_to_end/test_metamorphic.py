"""Two ways to write the same network give the same answer: no reference is needed to see that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import torq_byoc
from tests.relay_patterns.infra import Model, random_feeds
from torq_byoc.npu_model.config import NpuConfig

SMALL = NpuConfig(lram_bytes=32 * 1024)
SCALES = {"x": (0.04, -9), "conv": (0.11, 12), "sum": (0.13, -3)}
CHANNELS, OUTPUTS = 12, 22


def run(model: onnx.ModelProto, feeds: list[np.ndarray] | None = None, config: NpuConfig = SMALL) -> list[np.ndarray]:
    """The simulated outputs; inputs are the same codes for every model of these shapes."""
    named = random_feeds(model, 5)
    if feeds is not None:
        named = dict(zip(named, feeds, strict=True))
    compiled = torq_byoc.compile(model, hw=config)
    assert compiled.facts.cpu_ops == ()
    return list(compiled.run(named).values())


def weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heavy-tailed codes with an outlier channel, a scale a channel, and biases."""
    rng = np.random.default_rng(3)
    codes = np.clip(np.rint(rng.standard_t(2.5, (OUTPUTS, CHANNELS, 3, 3)) * 20), -127, 127).astype(np.int8)
    codes[5] = np.where(codes[5] >= 0, 127, -127)
    return codes, rng.uniform(0.001, 0.02, OUTPUTS).astype(np.float32), rng.integers(-4000, 4000, OUTPUTS)


def conv(m: Model, x: str, outputs: slice = slice(None)) -> str:
    """A stride-2 convolution with asymmetric pads, of some of the output channels."""
    codes, scales, biases = (part[outputs] for part in weights())
    weight = m.qconst(codes, scales, 0, axis=0)
    bias = m.qconst(biases.astype(np.int32), np.float32(SCALES["x"][0]) * scales, 0)
    return m.requantized(m.op("Conv", x, weight, bias, strides=[2, 2], pads=[1, 0, 2, 1]), *SCALES["conv"])


def network(body: Callable[[Model, str], str], last: str = "conv", batch: int = 1) -> onnx.ModelProto:
    """A quantized input, ``body``, and the codes of its result as output."""
    m = Model()
    result = body(m, m.qinput((batch, CHANNELS, 37, 41), *SCALES["x"]))
    m.output(m.quantize(result, *SCALES[last]), "int8")
    return m.proto()


PLAIN = network(conv)


def test_convolution_split_by_output_channels() -> None:
    def split(m: Model, x: str) -> str:
        parts = [conv(m, x, slice(0, 9)), conv(m, x, slice(9, 10)), conv(m, x, slice(10, None))]
        return m.op("Concat", *parts, axis=1)

    assert np.array_equal(run(network(split))[0], run(PLAIN)[0])


def test_identity_quantize_pairs() -> None:
    def pairs(m: Model, x: str) -> str:
        return m.requantized(conv(m, m.requantized(x, *SCALES["x"])), *SCALES["conv"])

    assert np.array_equal(run(network(pairs))[0], run(PLAIN)[0])


@pytest.mark.parametrize("between", [False, True], ids=["bare", "quantized between"])
def test_transpose_pairs(between: bool) -> None:
    def turned(m: Model, x: str) -> str:
        x = m.op("Transpose", x, perm=[0, 2, 3, 1])
        x = m.requantized(x, *SCALES["x"]) if between else x
        y = conv(m, m.op("Transpose", x, perm=[0, 3, 1, 2]))
        y = m.requantized(m.op("Transpose", y, perm=[2, 0, 3, 1]), *SCALES["conv"])
        return m.op("Transpose", y, perm=[1, 3, 0, 2])

    assert np.array_equal(run(network(turned))[0], run(PLAIN)[0])


@pytest.mark.parametrize("kind", ["Add", "Mul", "Max", "Min"])
def test_order_of_commutative_inputs(kind: str) -> None:
    def combined(swapped: bool) -> Callable[[Model, str], str]:
        def body(m: Model, x: str) -> str:
            a, b = conv(m, x), conv(m, m.op("Relu", x))
            return m.op(kind, b, a) if swapped else m.op(kind, a, b)

        return body

    first, second = (run(network(combined(swapped), "sum"))[0] for swapped in (False, True))
    assert np.unique(first).size > 20
    assert np.array_equal(first, second)


def test_batch_order() -> None:
    model = network(conv, batch=3)
    (codes,) = random_feeds(model, 5).values()
    order = [2, 0, 1]
    assert np.array_equal(run(model, [codes[order]])[0], run(model, [codes])[0][order])
    singles = [run(PLAIN, [codes[i : i + 1]])[0] for i in range(3)]
    assert np.array_equal(np.concatenate(singles), run(model, [codes])[0])


@pytest.mark.parametrize("config", [NpuConfig(), NpuConfig(lram_bytes=24 * 1024), NpuConfig(slices=4)], ids=str)
def test_machine_does_not_matter(config: NpuConfig) -> None:
    assert np.array_equal(run(PLAIN, config=config)[0], run(PLAIN)[0])


def _float_network(body: Callable[[Model, str], str]) -> onnx.ModelProto:
    m = Model()
    m.output(body(m, m.input((2, 12, 9, 11))))
    return m.proto()


def test_bf16_transpose_pair_and_order_of_inputs() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_t(3, (7, 12, 3, 3)).astype(np.float32) / 10

    def straight(m: Model, x: str) -> str:
        y = m.op("Conv", x, m.const(weight))
        return m.op("Add", y, m.op("Sigmoid", y))

    def turned(m: Model, x: str) -> str:
        x = m.op("Transpose", m.op("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
        y = m.op("Conv", x, m.const(weight))
        return m.op("Add", m.op("Sigmoid", y), y)

    assert np.array_equal(run(_float_network(straight))[0], run(_float_network(turned))[0])
