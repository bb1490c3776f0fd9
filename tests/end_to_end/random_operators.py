"""The operators of random graphs: each function appends one to a graph, or returns False when it does not fit.

All take (grower, tensor) and draw the rest: attributes, weights, a second operand, the shapes that broadcasting allows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tests.end_to_end.random_graphs import MAX_ELEMENTS, Grower, Live

Operator = Callable[[Grower, Live], bool]
OPERATORS: dict[str, Operator] = {}

_CLAMPS = ("", "", "", "Relu", "Clip", "LeakyRelu")


def _operator(function: Operator) -> Operator:
    OPERATORS[function.__name__] = function
    return function


def _clamped(g: Grower, name: str) -> str:
    """The result with an activation behind it, or as it is."""
    kind = g.choices.pick(_CLAMPS)
    if kind == "Clip":
        low, high = g.choices.pick(((0.0, 6.0), (-1.0, 1.0), (0.25, 0.75)))
        return g.op("Clip", name, g.model.const(np.float32(low)), g.model.const(np.float32(high)))
    if kind == "LeakyRelu":
        return g.op("LeakyRelu", name, alpha=g.choices.pick((0.1, 0.25, 0.01)))
    return g.op(kind, name) if kind else name


def _window(g: Grower, extents: tuple[int, ...], most: int) -> dict[str, list[int]] | None:
    """Kernel, strides, dilations and pads that give at least one output along each axis."""
    kernel = [g.choices.integer(1, most) for _ in extents]
    strides = [g.choices.pick((1, 1, 2, 3, 4)) for _ in extents]
    dilations = [g.choices.pick((1, 1, 1, 2, 3)) for _ in extents]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    before = [g.choices.integer(0, k - 1) for k in kernel]
    after = [g.choices.integer(0, k - 1) for k in kernel]
    if any(e + b + a < r for e, b, a, r in zip(extents, before, after, reach, strict=True)):
        return None
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": [*before, *after]}


@_operator
def conv(g: Grower, x: Live) -> bool:
    """1-D or 2-D, any geometry, dense, grouped or depthwise, with or without bias and clamp."""
    if len(x.shape) not in (3, 4):
        return False
    window = _window(g, x.shape[2:], g.choices.pick((1, 3, 5, 7)))
    if window is None:
        return False
    channels = x.shape[1]
    groups = g.choices.pick([n for n in (1, 1, 2, 3, channels, channels) if channels % n == 0])
    outputs = groups * g.choices.integer(1, max(1, 20 // groups))
    weight, scales = g.weights((outputs, channels // groups, *window["kernel_shape"]), 0)
    operands = [g.read(x), weight]
    if g.choices.chance(70):
        operands.append(g.bias(outputs, x, np.broadcast_to(scales, outputs) if scales.size > 1 else scales))
    g.finish(_clamped(g, g.op("Conv", *operands, group=groups, **window)))
    return True


@_operator
def conv_transpose(g: Grower, x: Live) -> bool:
    """Stride and kernel up to 3, no output padding beyond the stride."""
    if len(x.shape) != 4:
        return False
    stride, kernel = g.choices.integer(1, 3), g.choices.integer(1, 4)
    outputs = g.choices.integer(1, 6)
    if kernel < stride or outputs * prod(x.shape[2:]) * stride * stride * x.shape[0] > MAX_ELEMENTS:
        return False
    weight, scales = g.weights((x.shape[1], outputs, kernel, kernel), 1)
    operands = [g.read(x), weight]
    if g.choices.chance(70):
        operands.append(g.bias(outputs, x, np.broadcast_to(scales, outputs) if scales.size > 1 else scales))
    pad = g.choices.integer(0, (kernel - 1) // 2)
    if min(x.shape[2:]) == 1 and 2 * pad >= kernel:
        return False
    g.finish(_clamped(g, g.op("ConvTranspose", *operands, strides=[stride] * 2, pads=[pad] * 4)))
    return True


@_operator
def dense(g: Grower, x: Live) -> bool:
    """Gemm of a matrix with constant weights."""
    if len(x.shape) != 2:
        return False
    outputs, trans = g.choices.integer(1, 70), g.choices.integer(0, 1)
    shape = (outputs, x.shape[1]) if trans else (x.shape[1], outputs)
    weight, scales = g.weights(shape, 0 if trans else 1)
    operands = [g.read(x), weight]
    if g.choices.chance(70):
        operands.append(g.bias(outputs, x, np.broadcast_to(scales, outputs) if scales.size > 1 else scales))
    g.finish(_clamped(g, g.op("Gemm", *operands, transB=trans)))
    return True


@_operator
def matmul(g: Grower, x: Live) -> bool:
    """By a constant matrix, from 2-D to batched."""
    if len(x.shape) < 2:
        return False
    outputs = g.choices.integer(1, 40)
    lead = x.shape[:-2] if g.choices.chance(20) else ()
    if prod(x.shape[:-1]) * outputs > MAX_ELEMENTS:
        return False
    weight, _ = g.weights((*lead, x.shape[-1], outputs), None if lead else 1)
    g.finish(_clamped(g, g.op("MatMul", g.read(x), weight)))
    return True


@_operator
def matmul_pair(g: Grower, x: Live) -> bool:
    """A tensor by its own transpose, or by another live tensor."""
    if len(x.shape) < 2 or prod(x.shape[:-1]) * x.shape[-2] > MAX_ELEMENTS:
        return False
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    other = g.choices.pick([t for t in g.live if t.shape == x.shape])
    g.finish(g.op("MatMul", g.read(x), g.op("Transpose", g.read(other), perm=order)))
    return True


def _broadcast_shape(g: Grower, shape: tuple[int, ...]) -> tuple[int, ...]:
    kept = tuple(extent if g.choices.chance(50) else 1 for extent in shape)
    return kept[g.choices.integer(0, len(kept)) :] if g.choices.chance(30) else kept


@_operator
def binary(g: Grower, x: Live) -> bool:
    """Add, Sub, Mul, Max, Min or Div by a constant, of unlike scales, either side broadcast."""
    kind = g.choices.pick(("Add", "Sub", "Mul", "Max", "Min"))
    others = [t for t in g.live if t is not x and _broadcasts(t.shape, x.shape)]
    if others and g.choices.chance(60):
        other = g.read(g.choices.pick(others))
    elif g.choices.chance(25):
        other = g.read(x)
    else:
        other = g.constant(_broadcast_shape(g, x.shape))
    operands = [g.read(x), other]
    if g.choices.chance(30):
        operands.reverse()
    g.finish(_clamped(g, g.op(kind, *operands)))
    return True


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return prod(np.broadcast_shapes(a, b)) <= MAX_ELEMENTS and len(np.broadcast_shapes(a, b)) <= 4
    except ValueError:
        return False


@_operator
def divide(g: Grower, x: Live) -> bool:
    """By a positive constant."""
    g.finish(g.op("Div", g.read(x), g.constant(_broadcast_shape(g, x.shape), positive=True)))
    return True


@_operator
def unary(g: Grower, x: Live) -> bool:
    """Functions of one tensor."""
    kind = g.choices.pick(
        ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Erf", "Abs", "Neg", "Clip", "Exp", "Elu")
    )
    source = g.read(x)
    if kind == "Clip":
        g.finish(g.op("Clip", source, g.model.const(np.float32(-0.5)), g.model.const(np.float32(1.5))))
    elif kind == "Exp":
        g.finish(g.op("Exp", g.op("Neg", g.op("Abs", source))) if not g.quantized else g.op("Exp", source))
    else:
        attrs = {"LeakyRelu": {"alpha": 0.2}, "Elu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 1 / 6}}
        g.finish(g.op(kind, source, **attrs.get(kind, {})))
    return True


@_operator
def gate(g: Grower, x: Live) -> bool:
    """SiLU and GELU as they are exported: products with a function of the same tensor."""
    source = g.read(x)
    if g.choices.chance(50):
        g.finish(g.op("Mul", source, g.op("Sigmoid", source)))
        return True
    one, half = g.model.const(np.float32(1.0)), g.model.const(np.float32(0.5))
    root = g.model.const(np.float32(np.sqrt(2.0)))
    inner = g.op("Add", g.op("Erf", g.op("Div", source, root)), one)
    g.finish(g.op("Mul", g.op("Mul", source, inner), half))
    return True


@_operator
def prelu(g: Grower, x: Live) -> bool:
    """One slope a channel."""
    if len(x.shape) < 2:
        return False
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    g.finish(g.op("PRelu", g.read(x), g.constant(shape)))
    return True


@_operator
def pool(g: Grower, x: Live) -> bool:
    """Max and average pools with every rounding and padding mode."""
    if len(x.shape) not in (3, 4):
        return False
    window = _window(g, x.shape[2:], g.choices.pick((2, 3, 5)))
    if window is None:
        return False
    if any(window["pads"]):
        window["dilations"] = [1] * len(window["dilations"])  # no window may lie in the padding altogether
    kind, ceil = g.choices.pick(("MaxPool", "AveragePool")), g.choices.integer(0, 1)
    ceil = ceil and _last_window_has_data(x.shape[2:], window)
    if kind == "MaxPool":
        g.finish(g.op(kind, g.read(x), ceil_mode=ceil, **window), like=x)
        return True
    include = g.choices.integer(0, 1)
    g.finish(g.op(kind, g.read(x), ceil_mode=ceil, count_include_pad=include, **window))
    return True


def _last_window_has_data(extents: tuple[int, ...], window: dict[str, list[int]]) -> int:
    """Whether rounding up adds no window that starts in the padding: onnx's shape inference counts those, runtimes
    leave them out."""
    for axis, extent in enumerate(extents):
        reach = (window["kernel_shape"][axis] - 1) * window["dilations"][axis] + 1
        before, stride = window["pads"][axis], window["strides"][axis]
        last = -(-(extent + before + window["pads"][axis + len(extents)] - reach) // stride) * stride
        if last >= extent + before:
            return 0
    return 1


@_operator
def global_pool(g: Grower, x: Live) -> bool:
    """Mean or maximum of the plane."""
    if len(x.shape) != 4:
        return False
    average = g.choices.chance(60)
    kind = "GlobalAveragePool" if average else "GlobalMaxPool"
    g.finish(g.op(kind, g.read(x)), like=None if average else x)
    return True


@_operator
def reduce(g: Grower, x: Live) -> bool:
    """Mean, sum, maximum or minimum over any axes."""
    kind = g.choices.pick(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"))
    axes = [axis for axis in range(len(x.shape)) if g.choices.chance(40)] or [len(x.shape) - 1]
    keep = g.choices.integer(0, 1)
    if not keep and len(axes) == len(x.shape):
        return False
    g.finish(g.op(kind, g.read(x), g.integers(*axes), keepdims=keep))
    return True


@_operator
def softmax(g: Grower, x: Live) -> bool:
    """Along any axis."""
    g.finish(g.op("Softmax", g.read(x), axis=g.choices.integer(0, len(x.shape) - 1)))
    return True


@_operator
def lrn(g: Grower, x: Live) -> bool:
    """Local response normalization over channels."""
    if len(x.shape) != 4:
        return False
    g.finish(g.op("LRN", g.read(x), size=g.choices.pick((3, 5)), alpha=g.choices.pick((1e-4, 0.05)), bias=1.0))
    return True


@_operator
def concat(g: Grower, x: Live) -> bool:
    """With live tensors that fit, or with itself and a constant."""
    axis = g.choices.integer(0, len(x.shape) - 1)
    rest = [t for t in g.live if len(t.shape) == len(x.shape) and _differs_only(t.shape, x.shape, axis)]
    others = [g.read(g.choices.pick(rest)) for _ in range(g.choices.integer(1, 2))]
    if prod(x.shape) * 4 > MAX_ELEMENTS:
        return False
    g.finish(g.op("Concat", g.read(x), *others, axis=axis), like=x)
    return True


def _differs_only(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    return all(i == axis or p == q for i, (p, q) in enumerate(zip(a, b, strict=True))) and a[axis] <= 3 * b[axis]


@_operator
def split(g: Grower, x: Live) -> bool:
    """Two parts, both used."""
    axis = g.choices.integer(0, len(x.shape) - 1)
    if x.shape[axis] < 2:
        return False
    cut = g.choices.integer(1, x.shape[axis] - 1)
    first, second = g.model.name("part"), g.model.name("part")
    sizes = g.integers(cut, x.shape[axis] - cut)
    import onnx

    name = g.model.name("split_node")
    g.model.nodes.append(onnx.helper.make_node("Split", [g.read(x), sizes], [first, second], name=name, axis=axis))
    g.finish(first, like=x)
    g.finish(second, like=x)
    return True


@_operator
def slice_(g: Grower, x: Live) -> bool:
    """A part of one axis, with a step."""
    axis = g.choices.integer(0, len(x.shape) - 1)
    begin = g.choices.integer(0, x.shape[axis] - 1)
    end = g.choices.integer(begin + 1, x.shape[axis])
    step = g.choices.pick((1, 1, 2, 3))
    bounds = (g.integers(begin), g.integers(end), g.integers(axis), g.integers(step))
    g.finish(g.op("Slice", g.read(x), *bounds), like=x)
    return True


@_operator
def pad(g: Grower, x: Live) -> bool:
    """Zeros or another constant around the last two axes, more on one side."""
    before = [g.choices.integer(0, 2) if i >= len(x.shape) - 2 else 0 for i in range(len(x.shape))]
    after = [g.choices.integer(0, 2) if i >= len(x.shape) - 2 else 0 for i in range(len(x.shape))]
    value = g.choices.pick((0.0, 0.0, x.scale * 3))
    g.finish(g.op("Pad", g.read(x), g.integers(*before, *after), g.model.const(np.float32(value))), like=x)
    return True


@_operator
def reshape(g: Grower, x: Live) -> bool:
    """To a matrix, to four axes, or by splitting the last axis."""
    count, batch = prod(x.shape), x.shape[0]
    rest = count // batch
    factors = [n for n in (2, 3, 4, 5, 7, 8) if rest % n == 0] or [1]
    factor = g.choices.pick(factors)
    target = g.choices.pick(((batch, rest), (batch, factor, rest // factor), (batch, factor, 1, rest // factor)))
    g.finish(g.op("Reshape", g.read(x), g.integers(*target)), like=x)
    return True


@_operator
def transpose(g: Grower, x: Live) -> bool:
    """Any order of the axes."""
    order, rest = [], list(range(len(x.shape)))
    while rest:
        order.append(rest.pop(g.choices.integer(0, len(rest) - 1)))
    g.finish(g.op("Transpose", g.read(x), perm=order), like=x)
    return True


@_operator
def shuffle_space(g: Grower, x: Live) -> bool:
    """Depth to space in both orders, and space to depth."""
    if len(x.shape) != 4:
        return False
    block = g.choices.integer(2, 3)
    if x.shape[1] % (block * block) == 0:
        mode = g.choices.pick(("DCR", "CRD"))
        g.finish(g.op("DepthToSpace", g.read(x), blocksize=block, mode=mode), like=x)
        return True
    if x.shape[2] % block or x.shape[3] % block:
        return False
    g.finish(g.op("SpaceToDepth", g.read(x), blocksize=block), like=x)
    return True


@_operator
def resize(g: Grower, x: Live) -> bool:
    """Nearest neighbour by whole factors."""
    if len(x.shape) != 4:
        return False
    factors = (g.choices.integer(1, 3), g.choices.integer(1, 3))
    if prod(x.shape) * prod(factors) > MAX_ELEMENTS:
        return False
    scales = g.model.const(np.array([1, 1, *factors], np.float32))
    mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    g.finish(g.op("Resize", g.read(x), "", scales, **mode), like=x)
    return True


@_operator
def requantize(g: Grower, x: Live) -> bool:
    """Another scale, zero point or type for the same values."""
    if not g.quantized:
        return False
    g.finish(g.read(x))
    return True
