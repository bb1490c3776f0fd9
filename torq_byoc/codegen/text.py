"""torq_hl as text, with its cost line."""

from __future__ import annotations

from torq_byoc.codegen.hl import Access, CallOp, CallProgram, Load, Op, RunProgram, SliceCall, SliceRun


def format_program(program: CallProgram | RunProgram) -> str:
    """One line an op, and a heading with the traffic and, as far as they are known, the cycles of every engine."""
    traffic = program.traffic
    cycles: dict[str, int] = {}
    for op in program.ops:
        if isinstance(op, SliceCall):
            continue
        engine = f"slice{op.slice_index}" if isinstance(op, SliceRun) else type(op).__name__.lower()
        cycles[engine] = cycles.get(engine, 0) + op.cycles
    cost = ", ".join(f"{name} {value}" for name, value in (*traffic.items(), *sorted(cycles.items())))
    return "\n".join([f"# {cost}", *(_line(program, op) for op in program.ops)]) + "\n"


def _line(program: CallProgram | RunProgram, op: CallOp | Op) -> str:
    head = f"{op.step:5d}  {op.node}: "
    if isinstance(op, SliceCall | SliceRun):
        accesses = op.accesses[:-1] if isinstance(op, SliceRun) else op.accesses
        operands = ", ".join(_access(program, access) for access in accesses)
        cycles = f"  [{op.cycles} cycles]" if isinstance(op, SliceRun) else ""
        return f"{head}slice{op.slice_index} {operands}{cycles}"
    verb = "load " if isinstance(op, Load) else "store"
    source, target = _access(program, op.source), _access(program, op.target)
    dims = "".join(f" x{count}@{stride}" for count, stride in op.transfer.dims)
    return f"{head}{verb} {source} -> {target}  {op.transfer.run}B{dims}  [{op.cycles} cycles]"


def _access(program: CallProgram | RunProgram, access: Access) -> str:
    buffer = program.buffers[access.buffer]
    box = ""
    if access.region is not None:
        pairs = zip(access.region.start, access.region.extent, strict=True)
        box = "[" + ", ".join(f"{start}:{start + extent}" for start, extent in pairs) + "]"
    return f"{access.effect.value} {buffer.space.value} %{buffer.index} {access.tensor or buffer.name}{box}"
