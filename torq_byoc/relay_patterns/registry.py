"""What an entry of the pattern tables is, and its registration with TVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tvm.relax.backend.pattern_registry import get_pattern, register_patterns
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.dpl import DFPattern
from tvm.relax.transform import PatternCheckContext

from torq_byoc.relay_patterns.legality import common_reasons
from torq_byoc.relay_patterns.view import View

if TYPE_CHECKING:
    from torq_byoc.relay_patterns.lowering import Lowering

Precision = Literal["quantized", "bf16", "mixed"]
"""Of a module: integers where operators stand between dequantize and quantize, bf16, or both.  Of a pattern: the
arithmetic of its operators; "mixed" is a border between the two."""
PREFIX = "torq"


@dataclass(frozen=True)
class Pattern:
    """One way to run a group of Relax operators on the NPU.

    Attributes:
        name: name of the composite function; starts with "torq.".
        precision: the arithmetic that it belongs to; "mixed" leads from one to the other.
        graph: builds the group as a data-flow pattern; its root is what leaves the group.
        check: reasons why a matched group cannot run on the NPU; empty when it can.
        lower: emits the group's NPU operators and returns the name of the output tensor.
        moves_only: the group computes nothing; a partition of such groups alone is not worth its trip.
    """

    name: str
    precision: Precision
    graph: Callable[[], DFPattern]
    check: Callable[[View], list[str]]
    lower: Callable[[Lowering], str]
    moves_only: bool = False

    def reasons(self, view: View) -> list[str]:
        """All reasons against a group; checks that need static shapes run only when shapes are static."""
        return common_reasons(view) or self.check(view)

    def entry(self) -> tuple[str, DFPattern, dict[str, DFPattern], Callable[[PatternCheckContext], bool]]:
        """The entry in the form of TVM's registry."""

        def legal(context: PatternCheckContext) -> bool:
            return not has_leaking_intermediate_variables(context) and not self.reasons(View.of_match(context))

        return self.name, self.graph(), {}, legal


def register(patterns: Iterable[Pattern]) -> None:
    """Put patterns into TVM's registry (prefix "torq"); those that are there already stay.

    TVM gives later entries priority, our tables earlier ones, hence the reversal.  Borders are none of them: whether
    they belong on the NPU depends on what is around them.
    """
    new = [pattern for pattern in patterns if pattern.precision != "mixed" and get_pattern(pattern.name) is None]
    register_patterns([pattern.entry() for pattern in reversed(new)])
