"""The Relax side of a compiled model: what calls the NPU programs and runs everything else on the CPU."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from torq_byoc.errors import InternalError, ProgramFormatError, TorqError, UnsupportedOpError
from torq_byoc.host_operators import check_operators
from torq_byoc.host_script import check_script
from torq_byoc.npu_model.container import pack_container, unpack_container
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.runtime import RUN_FUNCTION, take_failure


def is_npu_function(function: object) -> bool:
    """Whether a module's function is a partition for the NPU."""
    return isinstance(function, relax.Function) and bool(function.attrs) and function.attrs.get("Codegen") == "torq"


def npu_functions(module: tvm.IRModule) -> dict[str, relax.Function]:
    """Partitions of a module by global symbol, in name order."""
    found = {str(var.name_hint): function for var, function in module.functions.items() if is_npu_function(function)}
    return dict(sorted(found.items()))


_WIDER = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}
"""Where TVM looks for extremes: it begins with the largest finite number, which is infinite once it is narrowed."""


@relax.expr_functor.mutator
class _CallRewriter(relax.PyExprMutator):
    """Calls of partitions become calls of the runtime with the program as a constant; extremes may be infinite.

    What is quantized may be NaN: it takes the code of zero, as on the NPU.  TVM leaves it to the CPU's conversion.
    """

    def __init__(self, module: tvm.IRModule, programs: Mapping[str, bytes], runtime: str) -> None:
        super().__init__(module)
        self.module = module
        self.programs = programs
        self.runtime = runtime

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") in ("relax.max", "relax.min") and str(call.ty.dtype) in _WIDER:
            return self._extreme(call)
        if getattr(call.op, "name", "") == "relax.quantize":
            return self._quantize(call)
        if not isinstance(call.op, tvm.ir.GlobalVar) or not is_npu_function(self.module[call.op]):
            return call
        blob = np.frombuffer(self.programs[call.op.name_hint], np.uint8)
        arguments = relax.Tuple([relax.const(blob), relax.prim_value(len(call.args)), *call.args])
        outputs = call.ty
        if isinstance(outputs, relax.TupleType):
            outputs = list(outputs.fields)
        return relax.call_dps_packed(self.runtime, arguments, outputs)

    def _extreme(self, call: relax.Call) -> relax.Expr:
        dtype = str(call.ty.dtype)
        wide = self.builder_.emit(relax.op.astype(call.args[0], _WIDER[dtype]))
        found = self.builder_.emit(relax.Call(call.op, [wide], call.attrs, call.ty_args, call.span))
        return relax.op.astype(found, dtype)

    def _quantize(self, call: relax.Call) -> relax.Expr:
        values, *parameters = call.args
        zero = relax.const(0.0, str(values.ty.dtype))
        numbers = self.builder_.emit(relax.op.where(relax.op.isnan(values), zero, values))
        return relax.Call(call.op, [numbers, *parameters], call.attrs, call.ty_args, call.span)


def with_runtime_calls(
    module: tvm.IRModule, programs: Mapping[str, bytes], runtime: str = RUN_FUNCTION
) -> tvm.IRModule:
    """Replace calls of partitions by runtime calls and drop the partitions.

    Args:
        module: a partitioned module.
        programs: for every partition the bytes that its call carries: the packed program, or a reference.
        runtime: the global function that is called.

    Returns:
        A module that TVM's default pipeline can build.
    """
    rewriter = _CallRewriter(module, programs, runtime)
    for var, function in module.functions.items():
        if isinstance(function, relax.Function) and not is_npu_function(function):
            rewriter.builder_.update_func(var, rewriter.visit_expr(function))
    rewritten = rewriter.builder_.get()
    kept = {var: function for var, function in rewritten.functions.items() if not is_npu_function(function)}
    return tvm.IRModule(kept, attrs=rewritten.attrs)


def is_direct(module: tvm.IRModule) -> bool:
    """Whether ``main`` does nothing but hand its parameters, in order, to one partition and return its results."""
    main = module["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    calls = [binding for binding in bindings if isinstance(binding.value, tvm.ir.Call)]
    if len(calls) != 1 or not isinstance(calls[0].value.op, tvm.ir.GlobalVar):
        return False
    call = calls[0].value
    if len(call.args) != len(main.params):
        return False
    if any(not argument.same_as(parameter) for argument, parameter in zip(call.args, main.params, strict=True)):
        return False
    return _returns_in_order(calls[0].var, [b for b in bindings if b is not calls[0]], main.body.body)


def _returns_in_order(result: relax.Var, rest: list[relax.Binding], returned: relax.Expr) -> bool:
    position: dict[relax.Var, int | None] = {result: None}
    for binding in rest:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(result):
            position[binding.var] = int(value.index)
        elif isinstance(value, relax.Var) and value in position:
            position[binding.var] = position[value]
        elif isinstance(value, relax.Tuple) and [position.get(field, -1) for field in value.fields] == list(
            range(len(value.fields))
        ):
            position[binding.var] = None
        else:
            return False
    if isinstance(returned, relax.Tuple):
        return [position.get(field, -1) for field in returned.fields] == list(range(len(returned.fields)))
    return isinstance(returned, relax.Var) and position.get(returned, -1) in (None, 0)


_PRINTED_SCALARS = frozenset({"float32", "float64", "int32", "int64", "bool"})
"""Scalar types whose finite values TVMScript writes as numbers; others become references to metadata or quoted words,
which it cannot read back."""


_BF16 = DType.BF16.numpy
"""The one element type that numpy's file format has no name for; it is stored as the integers of its bits."""


@relax.expr_functor.mutator
class _ConstantLifter(relax.PyExprMutator):
    """Constants of a function become variables; what TVMScript prints exactly and reads back stays."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.values: list[np.ndarray] = []
        self.variables: list[relax.Var] = []

    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        value = constant.value.numpy()
        if value.ndim == 0 and value.dtype.name in _PRINTED_SCALARS and np.isfinite(value):
            return constant
        variable = relax.Var(f"constant_{len(self.values)}", constant.ty)
        self.values.append(value)
        self.variables.append(variable)
        return variable


def serialize(module: tvm.IRModule) -> bytes:
    """The module as bytes: TVMScript, with the tensor constants of ``main`` beside it.

    Raises:
        UnsupportedOpError: the module has functions that are no graph of operators, or operators without code.
        InternalError: the text does not read back as the same module.
        ProgramFormatError: the module holds more than operators and calls of the runtime.
    """
    lifter = _ConstantLifter(module)
    main = module["main"]
    body = lifter.visit_expr(main).body
    lifted = relax.Function([*main.params, *lifter.variables], body, main.ret_ty).with_attr("global_symbol", "main")
    functions = {var: lifted if var.name_hint == "main" else function for var, function in module.functions.items()}
    loop_nests = sorted(
        var.name_hint for var, function in functions.items() if not isinstance(function, relax.Function)
    )
    if loop_nests:
        raise UnsupportedOpError(
            "operators of the model run on the CPU but cannot be stored in a container",
            where=", ".join(loop_nests),
            why="TVM imports them as loop nests, and a container carries operators only",
            remedy="replace them, or build with tvm.compile(..., target='torq', relax_pipeline='torq')",
        )
    check_operators(module)
    text = tvm.IRModule(functions).script(show_meta=False)
    check_script(text)
    _check_reads_back(text)
    sections = {"script": text.encode()}
    for index, value in enumerate(lifter.values):
        buffer = io.BytesIO()
        np.save(buffer, value.view(np.uint16) if value.dtype.name == _BF16.name else value, allow_pickle=False)
        sections[f"constant/{index:05d}"] = buffer.getvalue()
    return pack_container(sections)


def _check_reads_back(text: str) -> None:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the parser prints what it also raises
            same = _parse(text).script(show_meta=False) == text
    except Exception as error:  # the parser has no base class for what it raises
        raise _not_stored(str(error)[:500]) from error
    if not same:
        raise _not_stored("its text reads back as another module")


def _not_stored(why: str) -> InternalError:
    return InternalError("the host part of the model cannot be stored", why=why, remedy="report it with the model")


def deserialize(data: bytes) -> tvm.IRModule:
    """The module of ``serialize``.

    Raises:
        ProgramFormatError: the bytes are no stored module.
    """
    sections = unpack_container(data)
    try:
        script = sections["script"].decode()
        check_script(script)
        with contextlib.redirect_stderr(io.StringIO()):  # the parser prints what it also raises
            module = _parse(script)
        names = sorted(name for name in sections if name.startswith("constant/"))
        values = [np.load(io.BytesIO(sections[name]), allow_pickle=False) for name in names]
        kinds = {parameter.name: str(parameter.ty.dtype) for parameter in module["main"].params}
        constants = {
            name: value.view(_BF16) if kinds.get(name) == _BF16.name else value
            for name, value in ((f"constant_{index}", value) for index, value in enumerate(values))
        }
        return relax.transform.BindParams("main", constants)(module)
    except TorqError:
        raise
    except Exception as error:  # the parser has no base class for what it raises
        raise ProgramFormatError(
            "the host part of the container cannot be read", why=str(error)[:500], remedy="compile the model again"
        ) from error


def _parse(text: str) -> tvm.IRModule:
    return tvm.script.from_source(text)


@dataclass(frozen=True)
class HostExecutable:
    """A built host module, called with numpy arrays in parameter order."""

    function: Callable[..., Any]

    def __call__(self, arguments: list[np.ndarray]) -> list[np.ndarray]:
        """Results of ``main`` in order.

        Raises:
            TorqError: what the runtime raised, in its own form.
            ProgramFormatError: the module does not fit its arguments or its programs.
        """
        tensors = [tvm.runtime.tensor(np.asarray(value, order="C")) for value in arguments]
        try:
            result = self.function(*tensors)
        except Exception as error:
            raise take_failure() or _unfit(error) from error
        fields = result if not isinstance(result, tvm.runtime.Tensor) else [result]
        return [field.numpy() for field in fields]


def build_host(module: tvm.IRModule) -> HostExecutable:
    """Build a module with runtime calls for this machine's CPU.

    Raises:
        ProgramFormatError: TVM refuses the module.
    """
    try:
        executable = tvm.compile(module, target=tvm.target.Target("llvm"))
        return HostExecutable(relax.VirtualMachine(executable, tvm.cpu())["main"])
    except Exception as error:
        raise _unfit(error) from error


def _unfit(error: Exception) -> ProgramFormatError:
    lines = str(error).strip().splitlines()
    return ProgramFormatError(
        "the host part of the model does not run",
        why=f"{type(error).__name__}: {lines[-1] if lines else ''}",
        remedy="compile the model again",
    )
