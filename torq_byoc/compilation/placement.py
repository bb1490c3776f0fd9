"""From a loaded model to what runs where: import, quantization, partitioning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx

from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.numeric_model import NumericModel, numeric_model
from torq_byoc.compilation.options import Options, arithmetic_of
from torq_byoc.errors import ScheduleError, choose_from
from torq_byoc.frontend import to_relax
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.relay_patterns import PartitionedModule, partition
from torq_byoc.schedules.record import DecisionRecord


@dataclass(frozen=True, eq=False, kw_only=True)
class Placement(NumericModel):
    """A model whose operators have their places.

    Attributes:
        parted: the Relax module with its partitions.
    """

    parted: PartitionedModule


def place(model: onnx.ModelProto, options: Options, clock: StageClock) -> Placement:
    """Prepare, quantize and partition a model.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: precision, calibration, shapes, machine.
        clock: takes the stages "import", "plan", "quantize" and "partition".

    Raises:
        TorqError: anything wrong with the model or the request; operators that nothing can run are listed
            all at once.
    """
    numeric = numeric_model(model, options, clock)
    with clock.stage("partition"):
        parted = partition(to_relax(numeric.model), arithmetic_of(numeric.precision), options.config)
    return Placement(**vars(numeric), parted=parted)


def check_decisions(record: DecisionRecord | None, graphs: Iterable[OpGraph]) -> None:
    """Every entry of a hand-written record must be about some partition of the model.

    Raises:
        ScheduleError: it names a node or a tensor that no partition has, or a group that lies in no single one.
    """
    if record is None:
        return
    programs, tensors = [], set()
    for graph in graphs:
        programs.append({node.name for node in graph.nodes})
        tensors |= set(graph.tensors)
    nodes: set[str] = set().union(*programs)
    grouped = {name for group in record.groups or () for name in group.nodes}
    unknown = sorted(((set(record.nodes) | set(record.slices) | grouped) - nodes) | (set(record.resident) - tensors))
    if unknown:
        raise ScheduleError(
            "the schedule names nodes or tensors that the model does not have",
            where=", ".join(unknown[:8]),
            why=f"{len(unknown)} unknown names",
            remedy=f"{choose_from(unknown[0], sorted(nodes))} (torq compile --explain lists them)",
        )
    for group in record.groups or ():
        if not any(names.issuperset(group.nodes) for names in programs):
            raise ScheduleError(
                "the schedule has a group of nodes that are not in one program",
                where=f"group of {', '.join(map(repr, group.nodes[:4]))}",
                why="what runs on the CPU lies between them",
                remedy="group nodes of one program (torq compile --explain lists them)",
            )
