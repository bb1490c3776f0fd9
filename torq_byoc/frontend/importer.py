"""Prepared ONNX -> Relax, in a form that pattern matching can rely on.

The module has one function ``main`` with one dataflow block.  Its parameters are the model's inputs, in
order; weights are constants.  All shapes are static.

Names
    Every ``relax.Call`` carries the ONNX node it came from in its span: ``call.span.source_name.name``
    (:func:`torq_byoc.frontend.onnx_node_name` reads it).  Spans live through ``FuseOpsByPattern`` and
    ``MergeCompositeFunctions``.  A call that yields a node's output is bound to a variable named after the
    ONNX tensor (made a valid identifier, and unique).  ``main`` has the attributes ``torq.input_names`` and
    ``torq.output_names``: the exact ONNX names, in order.

What each ONNX operator becomes (C = constant; "stock" is TVM's own converter, listed where it matters):

=========================  ==================================================================================
Conv                       ``nn.conv1d|conv2d|conv3d(x, w)``, layouts NCW/OIW, NCHW/OIHW, explicit padding
                           (begin..., end...); with bias ``add(conv, reshape(b, [1, O, 1, 1]))``, where w and b
                           are C or ``dequantize(C, C, C)``; a C bias arrives already reshaped: ``add(conv, C)``
ConvTranspose              ``nn.conv1d|conv2d_transpose(x, w)``, kernel layout IOHW; bias as above
Gemm                       [``permute_dims``] ``matmul(a, b)``; with C: ``add(matmul, c)``.  After ``prepare`` the
                           weight is row-major [K, N] already, and alpha, beta are folded
MatMul                     ``matmul``
QuantizeLinear             ``quantize(x, C, C, axis, out_dtype)``; int8, uint8, int16, uint16.  The constants are
                           both 0-d (axis 0) or both 1-d along axis; a missing zero point is zeros.  Parameters
                           from run time: the formula, in float operators
DequantizeLinear           ``dequantize(x, C, C, axis)``; also int32.  After ``prepare`` each has one reader
Relu, Sigmoid, Tanh, Erf   ``nn.relu``, ``sigmoid``, ``tanh``, ``erf``;  Exp, Log, Sqrt, Abs, Neg, Floor, Ceil alike
Clip                       [0, inf): ``nn.relu``; constant bounds: ``clip(x, lo, hi)`` (infinite where open);
                           bounds from run time: ``minimum(maximum(x, lo), hi)``; integers: maximum / minimum with C
LeakyRelu                  ``nn.leakyrelu(x, alpha)``
PRelu                      ``nn.prelu(x, C[n], axis)``; one value: ``nn.leakyrelu``; otherwise
                           ``add(nn.relu(x), multiply(slope, minimum(x, 0)))``; NaN or infinite slopes:
                           ``where(less(x, 0), multiply(C slope, x), x)``
HardSigmoid                ``clip(add(multiply(C alpha, x), C beta), 0, 1)``
HardSwish                  ``multiply(x, divide(clip(add(x, C 3), 0, 6), C 6))``
Swish                      ``multiply(x, sigmoid(x))``;  Mish ``multiply(x, tanh(softplus))``
Elu, Selu, Softplus        chains of exp, log, relu;  Gelu ``nn.gelu`` / ``nn.gelu_tanh``
Add, Sub, Mul, Div         ``add``, ``subtract``, ``multiply``, ``divide``; numpy broadcasting; operand order kept.
                           Div and Mod of integers by a divisor from run time never trap
Max, Min, Sum, Mean        ``maximum``, ``minimum``, ``add`` left to right; Mean then ``multiply(., C 1/n)``
Pow                        exponent 1, 2, 3: products; 0.5: ``sqrt``; -1: ``divide(C 1, x)``; else ``power``
Greater, Less, Equal, ...  ``greater``, ``less``, ``equal``, ``greater_equal``, ``less_equal``; Where ``where``
MaxPool, AveragePool       ``nn.max_pool1d|2d``, ``nn.avg_pool1d|2d`` with explicit padding, ceil_mode, dilation,
                           count_include_pad
GlobalAveragePool          ``mean(x, axis=[2, ...], keepdims=True)``;  GlobalMaxPool ``max`` alike
ReduceMean|Sum|Max|Min     ``mean|sum|max|min(x, axis, keepdims)``;  ReduceL2 and others: stock chains
BatchNormalization         does not occur after ``prepare``: folded into the weights, or ``add(multiply(x, C), C)``
GroupNormalization,        do not occur after ``prepare``: written out, like all of ``expand_functions.EXPANDED``
MeanVarianceNormalization
LSTM, GRU                  do not occur after ``prepare``: written out step by step, where their form allows it
LayerNormalization         ``nn.layer_norm(x, gamma, beta, axes)``
LRN                        ``divide(x, power(add(multiply(avg, C alpha), C bias), C beta))`` with avg =
                           ``reshape(nn.avg_pool2d(reshape(multiply(x, x), [N, 1, C, H*W]), [size, 1]), shape)``
Softmax, LogSoftmax        ``nn.softmax(x, axis)``, ``nn.log_softmax``
Reshape, Flatten,          ``reshape(x, static shape)`` for all four
Squeeze, Unsqueeze
Transpose                  ``permute_dims(x, axes)``
Concat                     ``concat((a, b, ...), axis)``
Split                      ``split(x, indices, axis)`` bound to a tuple; outputs are ``TupleGetItem``
Slice                      ``strided_slice(x, axes, begin, end, strides)``
Pad                        ``nn.pad(x, [b0, a0, b1, a1, ...], mode, value)``; negative pads: ``strided_slice`` first
Expand, Tile               ``broadcast_to(x, shape)``, ``tile(x, repeats)``
Gather                     ``take(x, indices, axis, mode="clip")``; constant indices are non-negative
GatherElements, GatherND,  ``gather_elements``, ``gather_nd``, ``scatter_elements``, ``scatter_nd``; indices from run
ScatterElements, ...ND     time are held inside the tensor
Einsum                     ``permute_dims``, ``reshape``, ``matmul`` (``multiply`` where nothing is summed)
CumSum                     ``cumsum``, between two ``flip`` when it runs backwards
DepthToSpace, SpaceTo...   ``reshape``, ``permute_dims``, ``reshape``
Resize, Upsample           ``image.resize2d(x, size)``, layout NCHW, method nearest_neighbor, linear or cubic; forms
                           that it does not know: for each axis ``take``, or ``matmul`` with C
Shape, Size, EyeLike       C
Cast                       ``astype``
everything else            stock; unsupported operators raise one UnsupportedOpError that lists them all, forms that
                           stock imports wrongly (``converters/refusals.py``) or refuses one that names the node
=========================  ==================================================================================
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as stock

from torq_byoc.errors import InternalError, TorqError, UnsupportedOpError
from torq_byoc.frontend.converters import CONVERTERS, REFUSALS, OnnxCall
from torq_byoc.frontend.graph import default_opset, operator_name
from torq_byoc.frontend.passes.name_nodes import name_nodes
from torq_byoc.frontend.spans import binding_owners, with_node_spans

_HANDLED_BY_THE_GRAPH_WALK = frozenset({"Constant"})
_NOT_OF_TENSORS = frozenset(
    [
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
    ]
)
"""Operators on sequences and optional values, which a graph of tensors does not hold; TVM's converters do not end."""

_LEAVES = (relax.Var, tvm.ir.GenericConst, relax.ShapeExpr)


def to_relax(model: onnx.ModelProto) -> tvm.IRModule:
    """Import a prepared model; the module docstring says what each operator becomes.

    Raises:
        UnsupportedOpError: operators without a Relax form, all of them at once.
        ShapeError: a shape is unknown where it must be known.
        InternalError: the import of a valid node failed.
    """
    named = onnx.ModelProto()
    named.CopyFrom(model)
    name_nodes(named.graph)
    refuse_unsupported(named)
    importer = _Importer(named.graph)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            module = importer.from_onnx(named.graph, default_opset(named))
        except BaseException:
            importer.abandon()
            raise
    _refuse_unknown_sizes(module["main"], importer.owners)
    return _finished(module, importer, named.graph)


def _refuse_unknown_sizes(main: relax.Function, owners: Mapping[str, str]) -> None:
    """Raise UnsupportedOpError at the first operator whose result has a size that is only known at run time."""
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    for binding, name in zip(bindings, binding_owners(bindings, owners), strict=True):
        if isinstance(binding, relax.MatchCast) or not _is_sized(binding.var.ty):
            raise UnsupportedOpError(
                "an operator's result has a size that is only known at run time",
                where=f"node {name!r}",
                why="a compiled model has fixed shapes",
                remedy="make the node's shape parameters constants, fix the input shapes with --shape, or cut the model"
                " before this node",
                details={"nodes": [name]},
            )


def _is_sized(kind: tvm.ir.Type) -> bool:
    if isinstance(kind, relax.TupleType):
        return all(map(_is_sized, kind.fields))
    values = getattr(kind if isinstance(kind, relax.ShapeType) else getattr(kind, "shape", None), "values", None)
    return values is not None and all(isinstance(v, tvm.tirx.IntImm) for v in values)


def unsupported_operators(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Operators without a Relax form -> names of the nodes that use them, in graph order."""
    known = (set(stock._get_convert_map()) | set(CONVERTERS) | _HANDLED_BY_THE_GRAPH_WALK) - _NOT_OF_TENSORS
    missing: dict[str, list[str]] = {}
    for node in _all_nodes(model.graph):
        if node.domain not in ("", "ai.onnx") or node.op_type not in known:
            missing.setdefault(operator_name(node), []).append(node.name or (node.output[0] if node.output else ""))
        elif node.op_type == "MaxPool" and len(node.output) > 1:
            missing.setdefault("MaxPool with indices", []).append(node.name)
    return missing


def refuse_unsupported(model: onnx.ModelProto) -> None:
    """Raise UnsupportedOpError when the model has operators without a Relax form."""
    missing = unsupported_operators(model)
    if not missing:
        return
    lines = [f"{op} ({len(nodes)}: {', '.join(map(repr, nodes[:3]))})" for op, nodes in sorted(missing.items())]
    raise UnsupportedOpError(
        f"{len(missing)} operator type(s) of the model can run neither on the NPU nor on the CPU",
        where="; ".join(lines),
        why="there is no conversion for them",
        remedy="replace these operators in the exporting framework, or cut the model before them",
        details={"ops": sorted(missing), "nodes": missing},
    )


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g)


def _finished(module: tvm.IRModule, importer: _Importer, graph: onnx.GraphProto) -> tvm.IRModule:
    """Spans on every call, and the ONNX names of inputs and outputs as attributes."""
    main = with_node_spans(module["main"], importer.owners)
    weights = {tensor.name for tensor in graph.initializer}
    main = main.with_attrs(
        {
            "torq.input_names": [v.name for v in graph.input if v.name not in weights],
            "torq.output_names": [v.name for v in graph.output],
        }
    )
    module["main"] = main
    return module


class _Importer(stock.ONNXGraphImporter):
    """TVM's graph walk with our converters first, ONNX names on bindings, and our errors.

    ``owners`` maps Relax variable names to the ONNX node that computes them.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        super().__init__({}, {}, keep_params_in_input=False, sanitize=True)
        self.owners: dict[str, str] = {}
        self._by_name = {node.name: node for node in _all_nodes(graph)}
        self._taken: set[str] = set()

    def abandon(self) -> None:
        """Close the block that a failed import leaves open; the builder would complain on stderr otherwise."""
        self.bb._end_block()

    def _sanitize_name(self, name: str) -> str:
        base = identifier(name)
        unique, count = base, 1
        while unique in self._taken:
            unique, count = f"{base}_{count}", count + 1
        self._taken.add(unique)
        return unique

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Done before the walk, for sub-graphs and operator domains as well."""

    def _convert_operator(self, op_name: str, inputs: list[Any], attrs: dict[str, Any], opset: int) -> relax.Expr:
        name = attrs["tvm_custom"]["name"]
        try:
            result = self._converted(op_name, name, inputs, attrs, opset)
        except TorqError:
            raise
        except Exception as error:
            raise InternalError(
                f"{op_name} could not be imported",
                where=f"node {name!r}",
                why=f"{type(error).__name__}: {_first_line(error)}",
                remedy="simplify this node in the exporting framework; please report the model",
                details={"node": name, "op": op_name},
            ) from error
        return self._bound(result, self._by_name[name])

    def _converted(self, op_name: str, name: str, inputs: list[Any], attrs: dict[str, Any], opset: int) -> relax.Expr:
        call = OnnxCall(self.bb, op_name, name, list(inputs), attrs, opset)
        if op_name in REFUSALS and (reason := REFUSALS[op_name](call)):
            raise call.unsupported(reason)
        if op_name in CONVERTERS:
            return self.bb.normalize(CONVERTERS[op_name](call))
        result = call.stock(stock._get_convert_map()[op_name])
        return self.bb.normalize(result) if isinstance(result, relax.Expr) else result

    def _bound(self, result: relax.Expr, node: onnx.NodeProto) -> relax.Expr:
        """Bind each output to a variable named after the ONNX tensor, and note the node as its owner."""
        if isinstance(result.ty, relax.TupleType) and not isinstance(result, relax.Tuple):
            whole = self._emit(result, node.name, node.name)
            result = relax.Tuple([relax.TupleGetItem(whole, i) for i in range(len(result.ty.fields))])
        if isinstance(result, relax.Tuple):
            pairs = zip(result.fields, node.output, strict=False)
            fields = [self._emit(field, tensor, node.name) for field, tensor in pairs]
            return fields[0] if len(fields) == 1 else relax.Tuple(fields)
        return self._emit(result, node.output[0], node.name)

    def _emit(self, value: relax.Expr, tensor: str, node: str) -> relax.Expr:
        if isinstance(value, relax.Var):
            self.owners.setdefault(value.name, node)
        if isinstance(value, _LEAVES) or tvm.ir.is_prim_expr(value):
            return value
        variable = self.bb.emit(value, name_hint=identifier(tensor or node))
        self.owners[variable.name] = node
        return variable


def identifier(name: str) -> str:
    """An ONNX name with everything but letters, digits and underscores replaced; never empty."""
    cleaned = re.sub(r"[^0-9A-Za-z_]", "_", name)
    return cleaned if cleaned and not cleaned[0].isdigit() else f"t_{cleaned}"


def _first_line(error: BaseException) -> str:
    lines: Iterable[str] = str(error).strip().splitlines()
    return next(iter(lines), "")
