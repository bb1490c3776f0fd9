"""One small model an ONNX operator, to find out what the compiler really does with it.

A probe is ``Abs -> operator -> Abs`` where types allow, so that pure data movement has NPU neighbours.  Functions of
one number see both sides of zero, in ``MatMul -> operator -> MatMul``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
NODE = "probe"
_MIXER = "mixer"
IMAGE = (1, 8, 12, 12)
ROWS = (1, 12, 32)


@dataclass(frozen=True)
class Probe:
    """An operator with what it needs.

    Attributes:
        inputs: shapes of tensors that vary.
        constants: further inputs with fixed values, after the others; None for one left out.
        first: a fixed input before all others.
        attrs: attributes of the node.
        chained: the result is a float tensor that another operator can follow.
        signed: the operator is given negative numbers too.
    """

    op: str
    inputs: tuple[tuple[int, ...], ...] = (IMAGE,)
    constants: tuple[np.ndarray | None, ...] = ()
    first: np.ndarray | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    chained: bool = True
    signed: bool = False

    def model(self) -> onnx.ModelProto:
        """The probe as a float ONNX model."""
        names = [f"x{i}" for i in range(len(self.inputs))]
        nodes = [self._neighbour(name, f"{name}_fed", f"before{i}") for i, name in enumerate(names)]
        fixed = {f"c{i}": value for i, value in enumerate(self.constants) if value is not None}
        operands = [f"{n}_fed" for n in names] + [
            f"c{i}" if v is not None else "" for i, v in enumerate(self.constants)
        ]
        if self.first is not None:
            fixed["first"] = self.first
            operands.insert(0, "first")
        results = [f"r{i}" for i in range(self.outputs)]
        nodes.append(helper.make_node(self.op, operands, results, NODE, **self.attrs))
        if self.chained:
            nodes += [self._neighbour(name, f"{name}_read", f"after{i}") for i, name in enumerate(results)]
            results = [f"{name}_read" for name in results]
        if self.signed:
            fixed[_MIXER] = _weights(self.inputs[0][-1], self.inputs[0][-1])
        graph = helper.make_graph(
            nodes,
            self.op,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, self.inputs, strict=True)],
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
                if self.chained
                else onnx.ValueInfoProto(name=n)
                for n in results
            ],
            [numpy_helper.from_array(value, name) for name, value in fixed.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)

    def _neighbour(self, source: str, result: str, name: str) -> onnx.NodeProto:
        operands = [source, _MIXER] if self.signed else [source]
        return helper.make_node("MatMul" if self.signed else "Abs", operands, [result], name)

    def data(self) -> dict[str, np.ndarray]:
        """Two calibration samples, away from zero so that logarithms and quotients are finite, unless signed."""
        rng = np.random.default_rng(0)
        low = -1.0 if self.signed else 0.1
        return {
            f"x{i}": rng.uniform(low, 1.0, (2 * shape[0], *shape[1:])).astype(np.float32)
            for i, shape in enumerate(self.inputs)
        }


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-0.5, 0.5, shape).astype(np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _each(names: str, **options: Any) -> list[Probe]:
    return [Probe(name, **options) for name in names.split()]


def _recurrent(op: str, gates: int) -> Probe:
    weights = (_weights(1, gates * 16, 32), _weights(1, gates * 16, 16), _weights(1, gates * 16 * 2))
    return Probe(op, ((4, 1, 32),), weights, attrs={"hidden_size": 16})


_TWO_ROWS = (ROWS, ROWS)

PROBES: Sequence[Probe] = (
    Probe("Conv", (IMAGE,), (_weights(16, 8, 3, 3), _weights(16)), attrs={"pads": [1, 1, 1, 1]}),
    Probe("ConvTranspose", (IMAGE,), (_weights(8, 16, 2, 2),), attrs={"strides": [2, 2]}),
    Probe("Gemm", ((4, 32),), (_weights(32, 16), _weights(16))),
    Probe("MatMul", (ROWS, (1, 32, 12))),
    *(_recurrent(op, gates) for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))),
    *_each("Log Sqrt Reciprocal", inputs=(ROWS,)),
    *_each("Relu Sigmoid Tanh Erf Exp Abs Neg Floor Ceil Round Sign Sin Cos", inputs=(ROWS,), signed=True),
    *_each("LeakyRelu Elu Selu Celu Softplus Softsign HardSigmoid HardSwish Mish Gelu", inputs=(ROWS,), signed=True),
    Probe("ThresholdedRelu", (ROWS,), signed=True),
    Probe("PRelu", (IMAGE,), (_weights(8, 1, 1),), signed=True),
    Probe("Clip", (ROWS,), (_scalar(0), _scalar(6))),
    *_each("Add Sub Mul Div Max Min Pow Mod", inputs=_TWO_ROWS),
    *_each("Sum Mean", inputs=(ROWS, ROWS, ROWS)),
    *_each("Equal Greater GreaterOrEqual Less LessOrEqual", inputs=_TWO_ROWS, chained=False),
    Probe("MaxPool", (IMAGE,), (), attrs={"kernel_shape": [2, 2], "strides": [2, 2]}),
    Probe("AveragePool", (IMAGE,), (), attrs={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    *_each("GlobalMaxPool GlobalAveragePool"),
    *_each("ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd", inputs=(ROWS,), constants=(_ints(2),)),
    *_each("ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp", inputs=(ROWS,), constants=(_ints(2),)),
    *_each("ArgMax ArgMin", inputs=(ROWS,), attrs={"axis": 2}, chained=False),
    Probe("Softmax", (ROWS,)),
    Probe("LogSoftmax", (ROWS,)),
    Probe("BatchNormalization", (IMAGE,), (*(_weights(8) for _ in range(3)), np.abs(_weights(8)) + 0.5)),
    Probe("InstanceNormalization", (IMAGE,), (_weights(8), _weights(8))),
    Probe("GroupNormalization", (IMAGE,), (_weights(8), _weights(8)), attrs={"num_groups": 4}),
    Probe("LayerNormalization", (ROWS,), (_weights(32), _weights(32))),
    Probe("LpNormalization", (ROWS,)),
    Probe("LRN", (IMAGE,), (), attrs={"size": 5}),
    Probe("Reshape", (IMAGE,), (_ints(1, 8, 144),)),
    Probe("Flatten", (IMAGE,)),
    Probe("Squeeze", (IMAGE,), (_ints(0),)),
    Probe("Unsqueeze", (IMAGE,), (_ints(0),)),
    Probe("Transpose", (IMAGE,), (), attrs={"perm": [0, 2, 3, 1]}),
    Probe("Concat", (IMAGE, IMAGE), (), attrs={"axis": 1}),
    Probe("Split", (IMAGE,), (), attrs={"axis": 1, "num_outputs": 2}, outputs=2),
    Probe("Slice", (IMAGE,), (_ints(2), _ints(10), _ints(2))),
    Probe("Pad", (IMAGE,), (_ints(0, 0, 1, 1, 0, 0, 1, 1), _scalar(0))),
    Probe("Expand", ((1, 8, 1, 1),), (_ints(1, 8, 6, 6),)),
    Probe("Tile", (IMAGE,), (_ints(1, 1, 2, 2),)),
    Probe("Gather", (IMAGE,), (_ints(1, 3),), attrs={"axis": 1}),
    Probe("GatherElements", ((4, 8),), (np.zeros((4, 8), np.int64),)),
    Probe("GatherND", ((4, 8),), (_ints(1)[None],)),
    Probe("DepthToSpace", (IMAGE,), (), attrs={"blocksize": 2}),
    Probe("SpaceToDepth", (IMAGE,), (), attrs={"blocksize": 2}),
    Probe(
        "Resize",
        (IMAGE,),
        (None, _floats(1, 1, 2, 2)),
        attrs={"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    ),
    Probe("Where", _TWO_ROWS, first=np.arange(32) % 2 == 0),
    *_each("Identity Dropout"),
    Probe("Cast", (ROWS,), (), attrs={"to": TensorProto.INT32}, chained=False),
    Probe("CumSum", (ROWS,), (np.array(2, np.int64),)),
    Probe("TopK", (ROWS,), (_ints(4),), outputs=2, chained=False),
    Probe("Einsum", (ROWS, (1, 32, 12)), (), attrs={"equation": "bij,bjk->bik"}),
    Probe("Trilu", ((1, 12, 12),)),
    Probe("IsNaN", (ROWS,), chained=False),
)
