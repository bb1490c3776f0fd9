"""Whether the programs of a container compute with the numbers that model and options give.

A container has no record of its calibration data, method or precision plan.  Made anew from others, the stages differ
from its programs nearly everywhere; a defect of a program differs from what is meant in a layer or two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torq_byoc.accuracy.programs.intent import Intent, align
from torq_byoc.accuracy.stages import Stages
from torq_byoc.errors import AccuracyError, TorqError
from torq_byoc.npu_model.container import unpack_container
from torq_byoc.npu_model.program import Binding, DeclaredBuffer, Program

FEWEST_LAYERS = 2
"""Layers with other constants below which the numbers are not to blame, however few layers there are."""


def require_same_numbers(stages: Stages, path: Path) -> None:
    """Refuse a container that was compiled with another quantization than the stages have.

    Args:
        stages: with the container's programs.
        path: of the container, for messages.

    Raises:
        AccuracyError: types or quantization of a program's inputs or outputs, or the constants of most layers differ.
    """
    symbols = sorted(stages.graphs)
    compiled = sorted(partition.facts.symbol for partition in stages.compiled.partitions)
    if symbols != compiled:
        programs = f"they give the NPU programs {_names(symbols)}, the container has {_names(compiled)}"
        raise _other_numbers(programs, stages.precision, path)
    try:
        intents = stages.intents
    except TorqError as error:
        why = f"its decisions are none for what they give: {error.what}"
        raise _other_numbers(why, stages.precision, path) from error
    for partition in stages.compiled.partitions:
        program = Program.from_sections(unpack_container(partition.blob))
        for why in _differences(intents[partition.facts.symbol], program):
            raise _other_numbers(why, stages.precision, path)


def _names(symbols: list[str]) -> str:
    return ", ".join(symbols) or "none"


def _differences(intent: Intent, program: Program) -> Iterator[str]:
    """What shows that a program was compiled with other numbers than it is meant to have."""
    meant = intent.program
    borders = ((meant.inputs, program.inputs), (meant.outputs, program.outputs))
    for wanted, found in (pair for both in borders for pair in zip(*both, strict=False)):
        if _numbers(wanted) != _numbers(found):
            yield f"{found.name} is {_numbers(found)} in the container, and they give {_numbers(wanted)}"
    alignment = align(intent, program)
    if alignment is None:
        yield f"most of its {len(program.jobs)} jobs are not among the {len(meant.jobs)} that they give"
        return
    same: dict[str, bool] = {}
    for job, number in zip(program.jobs, alignment.meant, strict=True):
        for buffer in job.reads if number is not None else ():
            own, other = (_constant(one, one.buffers[buffer]) for one in (program, meant))
            if own is not None:
                same[job.label] = same.get(job.label, True) and own == other
    different = list(same.values()).count(False)
    if different >= FEWEST_LAYERS and 2 * different > len(same):
        yield f"{different} of {len(same)} layers have other constants in the container"


def _numbers(binding: Binding) -> str:
    """Type and quantization of a tensor that the caller gives or gets."""
    scale = "" if binding.scale is None else f" with scale {binding.scale:.9g} and zero point {binding.zero_point}"
    return f"{binding.dtype.value}{scale}"


def _constant(program: Program, buffer: DeclaredBuffer) -> bytes | None:
    """What a buffer of the memory image holds; None for any other buffer."""
    for segment in program.segments if buffer.space == "xram" else ():
        first = buffer.address - segment.address
        if first >= 0 and first + buffer.nbytes <= len(segment.data):
            return segment.data[first : first + buffer.nbytes]
    return None


def _other_numbers(why: str, precision: str, path: Path) -> AccuracyError:
    options = "--calib, --calibration-method, --disable-rewrite"
    plan = ", and with --precision-plan FILE that torq compile --save-precision-plan wrote"
    return AccuracyError(
        "the container was compiled from other numbers than these options give",
        where=str(path),
        why=why,
        remedy=f"give model, {options} and --shape as they were given to torq compile{plan * (precision == 'mixed')}; "
        "or compile it again, if it is of another version",
    )
