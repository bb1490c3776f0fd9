"""Bring a quantized graph into the one form that the pattern tables expect.

Before                                          After
----------------------------------------------  ----------------------------------------------------
one dequantize read by many                     a dequantize of its own for every reader
transpose(dequantize(x))                        dequantize(transpose(x)): data moves as integers
quantize(reshape(conv(...)))                    reshape(quantize(conv(...)))
reshape(dequantize(constant))                   dequantize(reshaped constant); a plain constant alike
quantize(dequantize(x)), same parameters        x
two equal quantizes of one tensor               one
max_pool(dequantize(x)), relu alike             dequantize(quantize(max_pool(dequantize(x)))): nothing is lost
quantize(max_pool(conv(...)))                   quantize(max_pool(dequantize(quantize(conv(...)))))
split(x)[i]                                     strided_slice(x)
reshape(x) to the shape of x                    x

Each step is exact: the values of every remaining quantized tensor are what they were.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from torq_byoc.relay_patterns.elementwise_functions import ELEMENTWISE_OPS
from torq_byoc.relay_patterns.movement import (
    applied_to,
    is_movement,
    moved_axis,
    moved_constant,
    pad_fill,
    slice_of_split,
)
from torq_byoc.relay_patterns.view import Quantization, constant_value, op_name, quantization_of, shape_of

_SELECTING = frozenset({"relax.nn.max_pool2d", "relax.nn.max_pool1d"})
_FOLDS_RELU = ELEMENTWISE_OPS | {"relax.quantize"}


def normalize(module: tvm.IRModule) -> tvm.IRModule:
    """The module in normal form; functions other than Relax functions are untouched."""
    module = relax.transform.CanonicalizeBindings()(module)
    mutator = _Normalizer(module)
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator.start(function)
            mutator.builder_.update_func(name, mutator.visit_expr(function))
    roots = [name.name_hint for name, f in module.functions.items() if isinstance(f, relax.Function)]
    module = relax.transform.CanonicalizeBindings()(mutator.builder_.get())
    return relax.transform.DeadCodeElimination(roots)(module)


def _same(a: Quantization, b: Quantization) -> bool:
    return a.dtype == b.dtype and np.array_equal(a.scale, b.scale) and np.array_equal(a.zero_point, b.zero_point)


@relax.expr_functor.mutator
class _Normalizer(relax.PyExprMutator):
    """Rewrites bindings in order; dequantize calls are held back and emitted anew for every reader."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.start(None)

    def start(self, function: relax.Function | None) -> None:
        """Forget the last function and count the readers of this one's variables."""
        self.held: dict[relax.Var, Call] = {}
        self.constants: dict[relax.Var, relax.Expr] = {}
        self.quantized: dict[tuple[relax.Expr, str, float, int], relax.Var] = {}
        self.moves: dict[relax.Var, Call] = {}
        self.splits: dict[relax.Var, Call] = {}
        self.readers: Counter[relax.Var] = Counter()
        self.reader_ops: defaultdict[relax.Var, set[str]] = defaultdict(set)
        if function is not None:
            relax.analysis.post_order_visit(function, self._count)

    def _count(self, expr: relax.Expr) -> None:
        if isinstance(expr, Call | relax.Tuple):
            for argument in expr.args if isinstance(expr, Call) else expr.fields:
                if isinstance(argument, relax.Var):
                    self.readers[argument] += 1
                    self.reader_ops[argument].add(op_name(expr))

    # -- traversal ---------------------------------------------------------------------------------

    def visit_dataflow_var_(self, op: relax.DataflowVar) -> relax.Expr:
        """Every reader of a held dequantize gets one of its own (a new call: TVM tells bindings apart by value)."""
        if op in self.constants:
            return self.constants[op]
        held = self.held.get(op)
        if held is None:
            return super().visit_dataflow_var_(op)
        return self.builder_.emit(self._with_codes(held, held.args[0]))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Rewrite the binding, or hold its value back."""
        var, value = binding.var, binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.splits:
            part = slice_of_split(self.splits[value.tuple_value], value.index)
            value = value if part is None else part
        if op_name(value) == "relax.split":
            self.splits[var] = value
        if not isinstance(value, Call):
            super().visit_var_binding_(relax.VarBinding(var, value) if value is not binding.value else binding)
            return
        if isinstance(var, relax.DataflowVar) and self._held_back(var, value):
            return
        rewritten = self._rewritten(value)
        leaves = self.builder_.current_block_is_dataflow() and not isinstance(var, relax.DataflowVar)
        new_var = (self.builder_.emit_output if leaves else self.builder_.emit)(rewritten, var.name)
        if is_movement(value) or op_name(value) in _SELECTING:
            self.moves[new_var] = rewritten
            self.readers[new_var] = self.readers[var]
        self.set_var_remap(var, new_var)

    def _held_back(self, var: relax.Var, value: Call) -> bool:
        """Remember what ``var`` stands for when its readers need no binding of it."""
        constant = constant_value(value.args[0]) if is_movement(value) else None
        moved = moved_constant(value, constant) if constant is not None else None
        if moved is not None:
            self.constants[var] = relax.const(moved, str(moved.dtype))
        elif _changes_nothing(value):
            self._alias(var, value.args[0])
        else:
            held = self._as_dequantize(value, self.reader_ops[var])
            if held is None:
                return False
            self.held[var] = held
        return True

    def _alias(self, var: relax.Var, source: relax.Expr) -> None:
        """Let ``var`` stand for ``source``."""
        if source in self.held:
            self.held[var] = self.held[source]
        else:
            self.set_var_remap(var, self.builder_.emit(self.visit_expr(source)))

    def _rewritten(self, call: Call) -> relax.Expr:
        if op_name(call) == "relax.quantize":
            return self._quantized(call)
        return self.visit_expr(call)

    # -- dequantize sinks --------------------------------------------------------------------------

    def _as_dequantize(self, call: Call, readers: set[str]) -> Call | None:
        """The dequantize that computes the same as ``call``, or None.

        A relu before an element-wise operator or a quantize stays: those patterns fold it.
        """
        name = op_name(call)
        if name == "relax.dequantize":
            return self._with_codes(call, self.visit_expr(call.args[0]))
        if is_movement(call):
            return self._concat_sunk(call) if name == "relax.concat" else self._movement_sunk(call)
        if name in _SELECTING or (name == "relax.nn.relu" and not readers & _FOLDS_RELU):
            return self._selection_sunk(call)
        return None

    def _with_codes(self, dequantize: Call, codes: relax.Expr) -> Call:
        return relax.Call(
            dequantize.op, [codes, *dequantize.args[1:]], dequantize.attrs, dequantize.ty_args, dequantize.span
        )

    def _held(self, expr: relax.Expr) -> tuple[Call, Quantization] | None:
        """The held dequantize behind a variable, with its parameters."""
        call = self.held.get(expr) if isinstance(expr, relax.Var) else None
        quant = quantization_of(call) if call is not None else None
        return None if call is None or quant is None else (call, quant)

    def _movement_sunk(self, call: Call) -> Call | None:
        held = self._held(call.args[0])
        if held is None:
            return None
        dequantize, quant = held
        constant = constant_value(dequantize.args[0])
        if constant is not None:
            return _moved_parameter(call, dequantize, quant, constant)
        if not quant.per_tensor:
            return None
        fill = None
        if op_name(call) == "relax.nn.pad":
            fill = float(quant.params().quantize(pad_fill(call)))
            if quant.params().dequantize(np.asarray(fill)) != pad_fill(call):
                return None
        codes = self.builder_.emit(applied_to(call, dequantize.args[0], fill))
        return self._with_codes(dequantize, codes)

    def _concat_sunk(self, call: Call) -> Call | None:
        if not isinstance(call.args[0], relax.Tuple):
            return None
        parts = [self._held(field) for field in call.args[0].fields]
        known = [part for part in parts if part is not None]
        if len(known) != len(parts) or not all(_same(known[0][1], q) and q.per_tensor for _, q in known):
            return None
        codes = relax.Tuple([dequantize.args[0] for dequantize, _ in known])
        return self._with_codes(known[0][0], self.builder_.emit(applied_to(call, codes)))

    def _selection_sunk(self, call: Call) -> Call | None:
        held = self._held(call.args[0])
        if held is None or not held[1].per_tensor or constant_value(held[0].args[0]) is not None:
            return None
        dequantize, quant = held
        source = self.builder_.emit(self._with_codes(dequantize, dequantize.args[0]))
        selected = self.builder_.emit(applied_to(call, source))
        quantize = self._quantize_like(dequantize, quant, selected, call.span)
        return self._with_codes(dequantize, self.builder_.emit(quantize))

    def _quantize_like(self, other: Call, quant: Quantization, data: relax.Expr, span: tvm.ir.Span | None) -> Call:
        call = relax.op.quantize(data, other.args[1], other.args[2], axis=quant.axis, out_dtype=quant.dtype)
        return relax.Call(call.op, call.args, call.attrs, call.ty_args, span)

    # -- quantize rises ----------------------------------------------------------------------------

    def _quantized(self, call: Call) -> relax.Expr:
        quant = quantization_of(call)
        source = call.args[0]
        held = self._held(source)
        if held is not None and quant is not None and _same(held[1], quant):
            return held[0].args[0]
        if held is not None or quant is None or not quant.per_tensor:
            return self.visit_expr(call)
        return self._risen(call, quant, self.visit_expr(source))

    def _risen(self, quantize: Call, quant: Quantization, source: relax.Expr) -> relax.Expr:
        """Quantize ``source`` (already rewritten) as early as its movements allow."""
        move = self.moves.get(source) if isinstance(source, relax.Var) else None
        if move is None or self.readers[source] != 1:
            return self._shared_quantize(quantize, quant, source)
        if op_name(move) in _SELECTING:
            codes = self.builder_.emit(self._risen(quantize, quant, move.args[0]))
            back = relax.op.dequantize(codes, *quantize.args[1:], axis=quant.axis, out_dtype="float32")
            selected = self.builder_.emit(applied_to(move, self.builder_.emit(back)))
            return self._quantize_like(quantize, quant, selected, move.span)
        if op_name(move) == "relax.concat":
            fields = [self.builder_.emit(self._part(quantize, quant, field)) for field in move.args[0].fields]
            return applied_to(move, relax.Tuple(fields))
        fill = float(quant.params().quantize(pad_fill(move))) if op_name(move) == "relax.nn.pad" else None
        return applied_to(move, self.builder_.emit(self._risen(quantize, quant, move.args[0])), fill)

    def _shared_quantize(self, quantize: Call, quant: Quantization, source: relax.Expr) -> relax.Expr:
        """``source`` quantized; the earlier result when it has been quantized in this way before."""
        key = (source, quant.dtype, float(quant.scale[0]), int(quant.zero_point[0]))
        if key not in self.quantized:
            self.quantized[key] = self.builder_.emit(self._quantize_like(quantize, quant, source, quantize.span))
        return self.quantized[key]

    def _part(self, quantize: Call, quant: Quantization, field: relax.Expr) -> relax.Expr:
        value = self.lookup_binding(field) if isinstance(field, relax.Var) else None
        if isinstance(value, Call) and op_name(value) == "relax.dequantize":
            present = quantization_of(value)
            if present is not None and _same(present, quant):
                return value.args[0]
        return self._risen(quantize, quant, field)


def _changes_nothing(call: Call) -> bool:
    """A split into one part, or a reshape to the shape that the data has."""
    if op_name(call) == "relax.split":
        return isinstance(call.ty, relax.TensorType)
    return op_name(call) == "relax.reshape" and shape_of(call) is not None and shape_of(call) == shape_of(call.args[0])


def _moved_parameter(call: Call, dequantize: Call, quant: Quantization, constant: np.ndarray) -> Call | None:
    """A reshaped or transposed quantized constant, its channel axis moved along."""
    moved = moved_constant(call, constant)
    axis = 0 if quant.scale.size == 1 else moved_axis(call, quant, shape_of(dequantize.args[0]) or ())
    if moved is None or axis is None:
        return None
    result = relax.op.dequantize(
        relax.const(moved, str(moved.dtype)), *dequantize.args[1:], axis=axis, out_dtype=str(dequantize.attrs.out_dtype)
    )
    return relax.Call(result.op, result.args, result.attrs, result.ty_args, call.span or dequantize.span)
