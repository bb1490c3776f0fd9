"""Parts of a schedule as a person would fix them by hand: nodes, fields, tensors and slices, sometimes the groups."""

from __future__ import annotations

from dataclasses import replace

from tests.end_to_end.choices import Choices, some_of
from tests.end_to_end.harness import Outcome
from torq_byoc.explore.tuning.subject import Subject
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.fusion.parts import part_options
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeOverride


def partial_record(choices: Choices, found: Outcome, config: NpuConfig) -> DecisionRecord:
    """Some of the decisions of a compiled model, a few of them changed to what is legal as well."""
    nodes: dict[str, NodeOverride] = {}
    resident: dict[str, bool] = {}
    slices: dict[str, int] = {}
    free: list[str] = []
    groups: list = []
    for partition in found.compiled.partitions:
        record = DecisionRecord.loads(partition.facts.decisions)
        fixed = some_of(choices, sorted(record.nodes), 50)
        nodes |= {name: _some_fields(choices, record.nodes[name]) for name in fixed}
        resident |= {name: record.resident[name] for name in some_of(choices, sorted(record.resident), 30)}
        slices |= record.slices
        free += [name for name in sorted(record.nodes) if name not in fixed]
        subject = Subject(found.reference.graphs[partition.facts.symbol], config, record.slices)
        groups += [_with_parts(choices, group, subject) for group in record.groups or ()]
    alone = {name for group in groups for name in group.nodes}.isdisjoint(nodes)
    kept = tuple(groups) if alone and choices.chance(30) else None
    counts = tuple(range(1, config.slices + 1))
    slices |= {name: choices.pick(counts) for name in some_of(choices, free, 30)}
    return DecisionRecord(nodes, resident, kept, slices)


def _with_parts(choices: Choices, group: GroupDecision, subject: Subject) -> GroupDecision:
    """The group with some of its nodes part by part, where they can be and the choice falls on that."""
    space = subject.spaces.space(subject.position[group.nodes[0]], subject.position[group.nodes[-1]])
    assert space is not None
    options = (replace(group, parts=parts) for family in part_options(space.segment) for parts in family)
    return choices.pick((group, *filter(space.can_divide, options)))


def _some_fields(choices: Choices, found: NodeOverride) -> NodeOverride:
    """A part of a node's decision.  What may depend on the tile goes with it."""
    if choices.chance(50):
        return NodeOverride(buffers=choices.pick((1, 2)))
    kept = replace(found, buffers=choices.pick((None, 1, found.buffers)))
    if kept.portion or choices.chance(50):
        return kept
    return replace(kept, split_axis=choices.pick((None, (None,))), portion=choices.pick((None, ())))
