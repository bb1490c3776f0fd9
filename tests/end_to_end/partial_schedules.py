"""Parts of a schedule as a person would fix them by hand: some nodes, fields and tensors, sometimes the groups."""

from __future__ import annotations

from dataclasses import replace

from tests.end_to_end.choices import Choices, some_of
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


def partial_record(choices: Choices, compiled: CompiledModel) -> DecisionRecord:
    """Some of the decisions of a compiled model, a few of them changed to what is legal as well."""
    nodes: dict[str, NodeOverride] = {}
    resident: dict[str, bool] = {}
    groups: list = []
    for partition in compiled.partitions:
        record = DecisionRecord.loads(partition.facts.decisions)
        fixed = some_of(choices, sorted(record.nodes), 50)
        nodes |= {name: _some_fields(choices, record.nodes[name]) for name in fixed}
        resident |= {name: record.resident[name] for name in some_of(choices, sorted(record.resident), 30)}
        groups += record.groups or ()
    alone = {name for group in groups for name in group.nodes}.isdisjoint(nodes)
    return DecisionRecord(nodes, resident, tuple(groups) if alone and choices.chance(30) else None)


def _some_fields(choices: Choices, found: NodeOverride) -> NodeOverride:
    """A part of a node's decision.  What may depend on the tile goes with it."""
    if choices.chance(50):
        return NodeOverride(buffers=choices.pick((1, 2)))
    kept = replace(found, buffers=choices.pick((None, 1, found.buffers)))
    if kept.portion or choices.chance(50):
        return kept
    return replace(kept, split_axis=choices.pick((None, (None,))), portion=choices.pick((None, ())))
