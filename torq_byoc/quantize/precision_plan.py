"""Which numbers every tensor and operator of a float model gets: plain data, printed, edited by hand and fed back.

A plan names what differs from its defaults.  An operator named "bf16" stays float; all others with an integer form
have one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from torq_byoc.errors import QuantizationError, choose_from
from torq_byoc.files import Expected, parse_json, read_text
from torq_byoc.typed_data import typed

VERSION = 1
LARGEST = 2.0**120
"""Of the bounds of a range; scales beyond leave what the machine multiplies."""
MOST_ROOM = 4.0
"""Factor that leaves 64 of the codes of 8 bits to the values seen."""

Dtype = Literal["int8", "int16"]
_FILE = Expected(
    QuantizationError, "the precision plan", "give a file that `torq compile --save-precision-plan` wrote", 64 << 20
)


class TensorPrecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one tensor gets; what is left out is the plan's default.

    Attributes:
        dtype: type of its codes.
        method: calibrator that finds its range.
        low, high: the range itself, in place of a calibrator; both or neither.
    """

    dtype: Dtype | None = None
    method: str | None = None
    low: float | None = None
    high: float | None = None


class PlannedRewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rewrite of the float model before it is quantized.

    Attributes:
        name: of the rewrite.
        places: names of the nodes that it may change; all of them have to be changed.
        strength: how far it goes, where it has several.
    """

    name: str
    places: tuple[str, ...]
    strength: float = 1.0


class PrecisionPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Numbers of a whole model.

    Attributes:
        version: of this format.
        dtype: type of the codes of tensors that are not named.
        method: calibrator of tensors that have none of their own.
        room: factor by which the ranges of tensors with codes of 8 bits are wider than their calibrator says.
        tensors: by name in the prepared model.
        nodes: operators that stay float, by name in the prepared model.
        rewrites: what is done to the prepared model before, in order; names are then those of the result.
        correct_biases: take from biases what rounding the weights adds to the means of results.
    """

    version: int = 0
    dtype: Dtype = "int8"
    method: str = "minmax"
    room: float = 1.0
    tensors: dict[str, TensorPrecision] = {}
    nodes: dict[str, Literal["bf16"]] = {}
    rewrites: tuple[PlannedRewrite, ...] = ()
    correct_biases: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that are no ranges.

        Raises:
            QuantizationError: there are such.
        """
        if not 1.0 <= self.room <= MOST_ROOM:
            raise QuantizationError(
                "the precision plan has a room that it cannot have",
                where="room",
                why=f"room is {self.room:g}",
                remedy=f"give a factor of 1 to {MOST_ROOM:g}",
            )
        for name, entry in self.tensors.items():
            _check_range(name, entry)

    @property
    def methods(self) -> tuple[str, ...]:
        """Every calibrator that the plan asks for, in name order."""
        return tuple(sorted({self.method, *(entry.method for entry in self.tensors.values() if entry.method)}))

    def dtype_of(self, tensor: str) -> Dtype:
        """Type of a tensor's codes."""
        return self._of(tensor).dtype or self.dtype

    def method_of(self, tensor: str, usual: str | None = None) -> str:
        """Calibrator of a tensor; ``usual`` where the plan has no word on this one."""
        return self._of(tensor).method or usual or self.method

    def range_of(self, tensor: str) -> tuple[float, float] | None:
        """The range that the plan itself gives a tensor."""
        entry = self._of(tensor)
        return None if entry.low is None or entry.high is None else (entry.low, entry.high)

    def with_float(self, nodes: Iterable[str]) -> PrecisionPlan:
        """The plan with further operators that stay float."""
        return msgspec.structs.replace(self, nodes={**self.nodes, **dict.fromkeys(nodes, "bf16")})

    def with_wide(self, tensors: Iterable[str]) -> PrecisionPlan:
        """The plan with codes of 16 bits for further tensors, but for those whose type it names."""
        free = (name for name in tensors if self._of(name).dtype is None)
        wide = {name: msgspec.structs.replace(self._of(name), dtype="int16") for name in free}
        return msgspec.structs.replace(self, tensors={**self.tensors, **wide})

    def dumps(self) -> str:
        """JSON with sorted keys: the same for the same plan."""
        text = msgspec.json.encode(msgspec.structs.replace(self, version=VERSION), order="sorted")
        return msgspec.json.format(text, indent=2).decode() + "\n"

    @classmethod
    def loads(cls, text: str) -> PrecisionPlan:
        """The plan of a JSON text.

        Raises:
            QuantizationError: it is not one, is of another version, or holds a range that is none.
        """
        try:
            plan = typed(parse_json(text), cls)
        except (ValueError, RecursionError) as error:
            raise _unreadable(str(error)) from error
        if plan.version != VERSION:
            raise _unreadable(f"its version is {plan.version}, this version of the compiler reads {VERSION}")
        return plan

    @classmethod
    def read(cls, path: Path) -> PrecisionPlan:
        """The plan of a file.

        Raises:
            QuantizationError: the file cannot be read, or holds no plan.
        """
        try:
            return cls.loads(read_text(path, _FILE))
        except QuantizationError as error:
            where = f"{path}: {error.where}" if error.where and str(path) not in error.where else str(path)
            raise QuantizationError(error.what, where=where, why=error.why, remedy=error.remedy) from error

    def check_names(self, tensors: Collection[str], nodes: Collection[str]) -> None:
        """Refuse names that the model does not have.

        Args:
            tensors: those that are quantized.
            nodes: operators that have an integer form.

        Raises:
            QuantizationError: a name is unknown.
        """
        for kind, named, known in (("tensor", self.tensors, tensors), ("operator", self.nodes, nodes)):
            unknown = sorted(set(named) - set(known))
            if unknown:
                raise QuantizationError(
                    f"the precision plan names {kind}s that the model does not quantize: {', '.join(unknown)}",
                    where=unknown[0],
                    remedy=_rename(unknown[0], known) if known else "leave them out",
                )

    def _of(self, tensor: str) -> TensorPrecision:
        return self.tensors.get(tensor, TensorPrecision())


def _rename(name: str, known: Collection[str]) -> str:
    """What to do about an unknown name; what rewrites make is called after what was there before."""
    before = max((one for one in known if name.startswith(f"{one}_")), key=len, default=None)
    if before is None:
        return choose_from(name, known)
    return f"if a rewrite made it of {before!r}, put that rewrite into the plan or name {before!r}; else take it out"


def _check_range(name: str, entry: TensorPrecision) -> None:
    low, high = entry.low, entry.high
    if low is None and high is None:
        return
    if low is None or high is None or entry.method is not None:
        raise _refused(name, "a range has two ends and no method", "give low and high, or a method")
    if not (math.isfinite(low) and math.isfinite(high) and -LARGEST <= low <= high <= LARGEST):
        raise _refused(name, f"low is {low}, high is {high}", "give finite numbers, the smaller one as low")


def _refused(name: str, why: str, remedy: str) -> QuantizationError:
    return QuantizationError("the precision plan gives a tensor no range", where=name, why=why, remedy=remedy)


def _unreadable(why: str) -> QuantizationError:
    return QuantizationError("the precision plan cannot be read", why=why, remedy=_FILE.remedy)
