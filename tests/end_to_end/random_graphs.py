"""Small random ONNX graphs: quantized (QDQ) ones in int8, uint8 or int16, float ones for bf16, and mixed ones.

A graph grows operator by operator.  Every result of a quantized graph is quantized with parameters that fit the
values seen in onnxruntime for a random input, then distorted: saturating scales, zero points at the edges.
In a mixed graph some operators have float parameters, and some of their results are not quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import strategies as st

from tests.end_to_end.choices import Choices, Drawn, Seeded
from tests.relay_patterns.infra import Model, onnxruntime_outputs, random_feeds

MAX_ELEMENTS = 50_000
QUANTIZED = ("int8", "uint8", "int16")
MIXED = "mixed"


@dataclass(frozen=True)
class Live:
    """A tensor that later operators may read: its codes, or its floats when ``dtype`` is float32."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float = 1.0
    zero_point: int = 0


@dataclass
class RandomGraph:
    """A finished graph with the names of the operators it was grown from."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    operators: tuple[str, ...]
    dtypes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"RandomGraph({', '.join(self.operators)}; {', '.join(self.dtypes)})\n{onnx.printer.to_text(self.model)}"


class UnfitError(Exception):
    """An operator's result has infinities or NaN; it is left out."""


@dataclass
class Grower:
    """A graph under construction; operators call it for operands and hand back float results."""

    choices: Choices
    rng: np.random.Generator
    dtype: str
    model: Model = field(default_factory=Model)
    live: list[Live] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    island: bool = False
    """Whether the operator under construction works in floats among quantized ones."""

    @property
    def quantized(self) -> bool:
        return self.dtype != "float32" and not self.island

    def enter(self, source: Live) -> None:
        """Choose the arithmetic of the next operator."""
        self.island = self.dtype == MIXED and (source.dtype == "float32" or self.choices.chance(25))

    # -- operands --------------------------------------------------------------------------------------

    def input(self, shape: tuple[int, ...]) -> Live:
        """A model input; quantized ones take any zero point."""
        if not self.quantized:
            tensor = Live(self.model.input(shape), shape, "float32")
        else:
            dtype = self.choices.pick(QUANTIZED) if self.dtype == MIXED else self.dtype
            scale, zero = float(np.float32(10.0 ** self.rng.uniform(-2.5, -0.5))), self.zero_point(dtype)
            scale = scale / 256 if dtype == "int16" else scale
            tensor = Live(self.model.input(shape, dtype), shape, dtype, scale, zero)
        self.live.append(tensor)
        return tensor

    def zero_point(self, dtype: str) -> int:
        info = np.iinfo(dtype)
        if dtype == "int16":
            return self.choices.pick((0, 0, 0, -37, 2000))
        middle = (int(info.min) + int(info.max) + 1) // 2
        edges = (middle, 0, int(info.min), int(info.max), middle - 5)
        return (
            self.choices.pick(edges) if self.choices.chance(70) else self.choices.integer(int(info.min), int(info.max))
        )

    def read(self, tensor: Live) -> str:
        """The tensor as floats."""
        if tensor.dtype == "float32":
            return tensor.name
        return self.model.dequantize(tensor.name, tensor.scale, tensor.zero_point, tensor.dtype)

    def weights(self, shape: tuple[int, ...], axis: int | None) -> tuple[str, np.ndarray]:
        """Heavy-tailed weights with an outlier channel; their float tensor and scales (one a channel, or one)."""
        values = self.rng.standard_t(2.5, shape)
        channels = 1 if axis is None else shape[axis]
        if axis is not None and channels > 1 and self.choices.chance(60):
            index = [slice(None)] * len(shape)
            index[axis] = self.choices.integer(0, channels - 1)
            values[tuple(index)] *= 30.0
        if not self.quantized:
            fan = max(1, values.size // max(channels, 1))
            return self.model.const((values / np.sqrt(fan)).astype(np.float32)), np.ones(1)
        per_channel = axis is not None and self.choices.chance(65)
        rest = tuple(i for i in range(len(shape)) if i != axis) if per_channel else None
        largest = np.maximum(np.abs(values).max(axis=rest, keepdims=True), 1e-3)
        codes = np.clip(np.rint(values / largest * 127), -127, 127)
        scales = (largest / 127 * 0.02).astype(np.float32).reshape(-1)
        dtype = self.choices.pick(("int8", "int8", "int8", "uint8"))
        zero = self.choices.pick((0, 128, 117)) if dtype == "uint8" else 0
        codes = np.clip(codes + zero, *((0, 255) if dtype == "uint8" else (-127, 127))).astype(dtype)
        scale = scales if per_channel else scales[0]
        return self.model.qconst(codes, scale, zero, axis=axis or 0), scales

    def bias(self, channels: int, source: Live, scales: np.ndarray) -> str:
        """A bias in units of data scale x weight scale, as quantizers write it."""
        if not self.quantized:
            return self.model.const(self.rng.standard_normal(channels).astype(np.float32))
        scale = (np.float32(source.scale) * scales.astype(np.float32)).astype(np.float32)
        spread = 30_000 if source.dtype != "int16" else 2_000_000
        codes = self.rng.integers(-spread, spread, channels).astype(np.int32)
        return self.model.qconst(codes, scale if scale.size > 1 else scale[0], 0)

    def constant(self, shape: tuple[int, ...], positive: bool = False) -> str:
        """A constant operand: codes of its own scale, or plain floats."""
        values = self.rng.standard_t(3, shape)
        values = np.abs(values) + 0.05 if positive else values
        if not self.quantized or self.choices.chance(30):
            return self.model.const(values.astype(np.float32))
        dtype = self.choices.pick(QUANTIZED)
        info, zero = np.iinfo(dtype), np.iinfo(dtype).min if positive else self.zero_point(dtype)
        reach = max(info.max - zero, zero - info.min)
        scale = float(np.float32(max(np.abs(values).max(), 0.01) / reach))
        codes = np.clip(np.rint(values / scale) + zero, info.min + int(positive), info.max).astype(dtype)
        return self.model.qconst(codes, scale, zero)

    # -- results ---------------------------------------------------------------------------------------

    def values(self, name: str) -> np.ndarray:
        """What onnxruntime computes for a float tensor of the graph so far, for a random input."""
        partial = Model(self.model.nodes, self.model.inputs, [], self.model.weights)
        partial.output(name)
        proto = partial.proto()
        return onnxruntime_outputs(proto, random_feeds(proto, 1))[0]

    def finish(self, name: str, like: Live | None = None) -> Live:
        """Keep a float result as a live tensor; ``like`` is the tensor whose quantization it could share."""
        values = self.values(name)
        if not np.isfinite(values).all():
            raise UnfitError
        if self.dtype == "float32" or (self.island and self.choices.chance(50)):
            tensor = Live(name, values.shape, "float32")
        elif like is not None and like.dtype != "float32" and self.choices.chance(75):
            codes = self.model.quantize(name, like.scale, like.zero_point, like.dtype)
            tensor = Live(codes, values.shape, like.dtype, like.scale, like.zero_point)
        else:
            tensor = self._requantized(name, values)
        self.live.append(tensor)
        return tensor

    def _requantized(self, name: str, values: np.ndarray) -> Live:
        kept = self.dtype != MIXED and self.choices.chance(85)
        dtype = self.dtype if kept else self.choices.pick(QUANTIZED)
        info = np.iinfo(dtype)
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        factor = self.choices.pick((1.0, 1.0, 0.5, 1.7))
        scale = float(np.float32(max(high - low, 1e-3) * factor / (int(info.max) - int(info.min))))
        if dtype == "int16":
            scale, zero = scale * 2, 0
        elif self.choices.chance(30):
            zero = self.zero_point(dtype)
        else:
            zero = int(np.clip(round(int(info.min) - low / scale), info.min, info.max))
        codes = self.model.quantize(name, scale, zero, dtype)
        return Live(codes, values.shape, dtype, scale, zero)

    def op(self, kind: str, *inputs: str, **attrs: object) -> str:
        return self.model.op(kind, *inputs, **attrs)

    def integers(self, *values: int) -> str:
        """An int64 vector, for shapes and axes."""
        return self.model.const(np.array(values, np.int64))


def grow(choices: Choices, dtype: str, operators: int, only: str | None = None) -> RandomGraph:
    """A random graph of so many operators (fewer when one cannot be applied), or with ``only`` of one kind."""
    from tests.end_to_end.random_operators import OPERATORS

    grower = Grower(choices, np.random.default_rng(choices.integer(0, 2**20)), dtype)
    grower.input(_input_shape(choices))
    kinds = [name for name in OPERATORS if only in (None, name)]
    for _ in range(operators):
        for _attempt in range(6 if only is None else 1):
            kind = choices.pick(kinds)
            source = grower.live[-1] if choices.chance(80) else choices.pick(grower.live)
            grower.enter(source)
            if _applied(OPERATORS[kind], grower, source):
                grower.operators.append(kind)
                break
    return _finished(grower)


def _applied(operator: Callable[[Grower, Live], bool], grower: Grower, source: Live) -> bool:
    try:
        return operator(grower, source)
    except UnfitError:
        return False


def _input_shape(choices: Choices) -> tuple[int, ...]:
    """Mostly small and odd; some large enough for several tiles in a small LRAM."""
    rank, batch = choices.pick((4, 4, 4, 2, 3)), choices.pick((1, 1, 1, 2, 3))
    if choices.chance(85):
        limits = {4: (18, 17, 19), 3: (20, 40), 2: (90,)}[rank]
        return (batch, *(choices.integer(1, limit) for limit in limits))
    return {4: (1, 24, 41, 45), 3: (2, 31, 600), 2: (13, 2700)}[rank]


def _finished(grower: Grower) -> RandomGraph:
    """The model whose outputs are the results that nothing reads."""
    read = {name for node in grower.model.nodes for name in node.input}
    for tensor in grower.live:
        if tensor.name not in read and tensor.name not in {value.name for value in grower.model.inputs}:
            grower.model.output(tensor.name, tensor.dtype)
    proto = grower.model.proto()
    dtypes = tuple(dict.fromkeys(tensor.dtype for tensor in grower.live))
    return RandomGraph(proto, random_feeds(proto, 7), tuple(grower.operators), dtypes)


def seeded_graph(seed: int, dtype: str, operators: int | None = None, only: str | None = None) -> RandomGraph:
    """The graph of a seed."""
    rng = np.random.default_rng(seed)
    return grow(Seeded(rng), dtype, operators or int(rng.integers(2, 7)), only)


@st.composite
def graphs(draw: st.DrawFn, dtypes: tuple[str, ...] = QUANTIZED, most: int = 6) -> RandomGraph:
    """Hypothesis strategy of random graphs."""
    dtype = draw(st.sampled_from(dtypes))
    return grow(Drawn(draw), dtype, draw(st.integers(1, most)))
