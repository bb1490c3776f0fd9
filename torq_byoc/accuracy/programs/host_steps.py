"""The host module of a compiled model as steps that can be run one by one, every value visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from torq_byoc.errors import ProgramFormatError
from torq_byoc.npu_model.runtime import RUN_FUNCTION

Value = Any
"""An array, or a list of arrays where an operator has several results."""


@dataclass(frozen=True)
class Step:
    """One operator on the host, or one call of a program.

    Attributes:
        name: of the variable that it defines.
        arguments: variables that it reads.
        program: what the call carries in place of the program; None for an operator.
    """

    name: str
    arguments: tuple[str, ...]
    program: bytes | None = None


class HostSteps:
    """``main`` of a host module, operator by operator.

    Args:
        module: as ``host_module.deserialize`` gives it.

    Raises:
        ProgramFormatError: TVM refuses an operator of it.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        main = module["main"]
        self.parameters = tuple(parameter.name for parameter in main.params)
        self._tuples: dict[str, relax.Tuple] = {}
        self._aliases: dict[str, relax.Expr] = {}
        self._functions: dict[str, relax.Function] = {}
        self.steps = tuple(self._steps(main))
        self._results = self._fields(main.body.body)
        self._run = self._built()

    def _steps(self, main: relax.Function) -> Iterator[Step]:
        for block in main.body.blocks:
            for binding in block.bindings:
                name, value = binding.var.name, binding.value
                if isinstance(value, relax.Tuple):
                    self._tuples[name] = value
                elif isinstance(value, relax.Var | relax.TupleGetItem):
                    self._aliases[name] = value
                elif _is_runtime_call(value):
                    packed = value.args[1].fields
                    arguments = tuple(field.name for field in packed[2:])
                    yield Step(name, arguments, packed[0].value.numpy().tobytes())
                else:
                    self._functions[name], arguments = self._alone(name, value)
                    yield Step(name, arguments)

    def _fields(self, value: relax.Expr) -> tuple[str, ...]:
        """Variables that a result is made of."""
        if isinstance(value, relax.Tuple):
            return tuple(field.name for field in value.fields)
        return self._fields(self._tuples[value.name]) if value.name in self._tuples else (value.name,)

    def _alone(self, name: str, value: relax.Expr) -> tuple[relax.Function, tuple[str, ...]]:
        """A function that does nothing but this operator."""
        parameters: dict[str, relax.Var] = {}

        def opened(argument: relax.Expr) -> relax.Expr:
            if isinstance(argument, relax.Var) and argument.name in self._tuples:
                argument = self._tuples[argument.name]
            if isinstance(argument, relax.Tuple):
                return relax.Tuple([opened(field) for field in argument.fields])
            if not isinstance(argument, relax.Var):
                return argument
            return parameters.setdefault(argument.name, relax.Var(argument.name, argument.ty))

        if isinstance(value, tvm.ir.Call):
            arguments = [opened(argument) for argument in value.args]
            kind, value = value.ty, relax.Call(value.op, arguments, value.attrs, value.ty_args)
            relax.expr._update_type(value, kind)
        result = relax.Var("result", value.ty)
        body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, value)])], result)
        function = relax.Function(list(parameters.values()), body, value.ty)
        return function.with_attr("global_symbol", f"step_{len(self._functions)}"), tuple(parameters)

    def _built(self) -> Mapping[str, Callable[..., Any]]:
        if not self._functions:
            return {}
        module = tvm.IRModule({str(function.attrs["global_symbol"]): function for function in self._functions.values()})
        try:
            machine = relax.VirtualMachine(tvm.compile(module, target=tvm.target.Target("llvm")), tvm.cpu())
        except Exception as error:  # TVM has no base class for what it raises
            raise ProgramFormatError(
                "the host part of the model does not run", why=str(error)[-300:], remedy="compile the model again"
            ) from error
        return {name: machine[str(function.attrs["global_symbol"])] for name, function in self._functions.items()}

    def lookup(self, values: Mapping[str, Value], name: str) -> Value:
        """The value of a variable, which may stand for a part of another one's."""
        if name in values:
            return values[name]
        if name in self._tuples:
            return [self.lookup(values, field.name) for field in self._tuples[name].fields]
        other = self._aliases[name]
        if isinstance(other, relax.TupleGetItem):
            return self.lookup(values, other.tuple_value.name)[int(other.index)]
        return self.lookup(values, other.name)

    def run(self, step: Step, values: Mapping[str, Value]) -> Value:
        """The result of an operator.

        Raises:
            ProgramFormatError: its operands are not of the types that it takes.
        """
        arrays = [np.ascontiguousarray(self.lookup(values, name)) for name in step.arguments]
        try:
            result = self._run[step.name](*map(tvm.runtime.tensor, arrays))
        except Exception as error:  # TVM has no base class for what it raises
            raise ProgramFormatError(
                "an operator on the host does not take its operands",
                where=step.name,
                why=str(error).strip().splitlines()[-1],
                remedy="compile the model again",
            ) from error
        return _arrays(result)

    def results(self, values: Mapping[str, Value]) -> list[np.ndarray]:
        """The results of ``main``."""
        return [self.lookup(values, name) for name in self._results]


def _is_runtime_call(value: relax.Expr) -> bool:
    return (
        isinstance(value, tvm.ir.Call)
        and getattr(value.op, "name", "") == "relax.call_dps_packed"
        and getattr(value.args[0], "global_symbol", "") == RUN_FUNCTION
    )


def _arrays(result: Any) -> Value:
    if isinstance(result, tvm.runtime.Tensor):
        return result.numpy()
    return [_arrays(field) for field in result]


def flat(value: Value) -> Sequence[np.ndarray]:
    """The arrays of a value."""
    return [array for field in value for array in flat(field)] if isinstance(value, list) else [value]
