"""What the quantizer does with each operator: which have integer forms, and whose result keeps its scale."""

from __future__ import annotations

SAME_SCALE = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "MaxPool", "Pad", "Reshape", "Resize", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Results are values of the first input, so they share its scale."""

WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Operators with constant weights, and the weights' channel axis after preparation."""

QUANTIZED = frozenset(
    {
        *SAME_SCALE, *WEIGHTED,
        "Abs", "Add", "AveragePool", "Clip", "Concat", "Div", "Elu", "Erf", "Exp", "Gelu", "GlobalAveragePool",
        "HardSigmoid", "HardSwish", "LRN", "LeakyRelu", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "ReduceMax",
        "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Sub", "Swish",
        "Tanh",
    }
)  # fmt: skip
"""Operators that are surrounded by quantize and dequantize; all others stay float on the CPU."""

TWO_OPERANDS = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min"})
"""Element-wise operators of which either operand may be the constant one."""

CLAMPS = frozenset({"Relu", "Clip"})
"""Operators that the requantization of their producer does for free."""

ABSORBING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul"})
"""Operators whose requantization can clamp."""

BOUNDED = frozenset({"HardSigmoid", "Sigmoid", "Softmax", "Tanh"})
"""Operators with results of magnitude 1 at most, which have scales of their own kind (``bounded_results``)."""
