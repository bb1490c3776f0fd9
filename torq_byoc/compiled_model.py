"""A compiled model: programs for the NPU, a host module for the rest, and the facts that reports need."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from torq_byoc.errors import CalibrationError, ProgramFormatError, ShapeError, unlike_names
from torq_byoc.input_arrays import as_type
from torq_byoc.npu_model.container import pack_container, read_container, unpack_container, write_file_atomically
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.runtime import LoadedProgram, load_program, reference_to
from torq_byoc.quantize.quantized import CalibrationSummary
from torq_byoc.schedules.record import DecisionRecord

if TYPE_CHECKING:
    from torq_byoc.host_module import HostExecutable
    from torq_byoc.quantize.planning.planner import Planned

FORMAT = 1


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model input or output as the caller sees it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if min(self.shape, default=0) < 0 or _numpy_type(self.dtype).kind not in "biufV":
            raise ValueError(f"no tensor is {self.dtype}{list(self.shape)}")


class CpuOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator that runs on the CPU, and why."""

    node: str
    op: str
    reason: str


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NPU operator: where it came from, how it is tiled, what it moves."""

    node: str
    origin: str
    op: str
    tiles: int
    macs: int
    output_shape: tuple[int, ...]
    dtype: str
    resident: bool
    estimate: float
    bytes: dict[str, int]

    def __post_init__(self) -> None:
        DType(self.dtype)  # a ValueError here makes the section unreadable
        strange = [key for key in self.bytes if key.partition("_")[0] not in ("in", "out")]
        if strange or min(self.tiles, self.macs, self.estimate, *self.bytes.values(), *self.output_shape) < 0:
            raise ValueError(f"no layer has bytes {self.bytes}, {self.tiles} tiles, {self.macs} MACs")


class Floor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the lower bound of the whole model is made of (cycles of one slice's peak, bytes once each).

    ``operators`` has the cycles of every MAC operator in order, and the bytes of weights that it is the first to read.
    """

    macs: int
    npu_macs: int
    mac_cycles: float
    in_bytes: int
    out_bytes: int
    operators: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        if min(self.macs, self.npu_macs, self.mac_cycles, self.in_bytes, self.out_bytes) < 0:
            raise ValueError("a term of the lower bound is negative")


class ModelFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about a compiled model that is not a program; stored in the container as JSON."""

    format: int
    model: str
    precision: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    floor: Floor
    cpu_ops: tuple[CpuOp, ...]
    npu_ops: int
    direct: bool
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class PartitionFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about one NPU program."""

    symbol: str
    lram_peak: int
    layers: tuple[Layer, ...]
    passes: tuple[tuple[str, dict[str, int]], ...]
    decisions: str


@dataclass(frozen=True)
class Partition:
    """One NPU program: its packed bytes and its facts."""

    facts: PartitionFacts
    blob: bytes

    @cached_property
    def loaded(self) -> LoadedProgram:
        """The verified program, ready to run."""
        return load_program(self.blob)

    @property
    def program(self) -> Program:
        """The machine program."""
        return self.loaded.program


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """The result of ``torq_byoc.compile`` and ``torq_byoc.load``.

    Attributes:
        facts: signature, coverage, lower-bound terms.
        partitions: NPU programs in symbol order.
        host: the serialized host module; empty when ``facts.direct``.
        timings: seconds a stage of this compilation took; empty for a loaded model.
        pass_seconds: the torq_hl passes' shares of the "generate" stage; empty for a loaded model.
        calibration: what this compilation's calibration found; None without one and for a loaded model.
        planned: the precision plan of a float model compiled in mixed precision; None for a loaded model.
    """

    facts: ModelFacts
    partitions: tuple[Partition, ...]
    host: bytes = b""
    timings: Mapping[str, float] = field(default_factory=dict)
    pass_seconds: Mapping[str, float] = field(default_factory=dict)
    calibration: CalibrationSummary | None = None
    planned: Planned | None = None

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One inference, NPU parts on the simulator.

        Args:
            inputs: an array for every model input, by name.

        Returns:
            The model outputs by name.

        Raises:
            CalibrationError: an input is missing, unknown, or of another type.
            ShapeError: an input has another shape.
        """
        arguments = self._arguments(inputs)
        results = self._run_direct(arguments) if self.facts.direct else self._executable(arguments)
        _check_signature("results", [math.prod(s.shape) for s in self.facts.outputs], [v.size for v in results])
        return {
            spec.name: value.reshape(spec.shape).astype(_numpy_type(spec.dtype), copy=False)
            for spec, value in zip(self.facts.outputs, results, strict=True)
        }

    def _run_direct(self, arguments: list[np.ndarray]) -> list[np.ndarray]:
        loaded = self.partitions[0].loaded
        names = [binding.name for binding in loaded.program.inputs]
        _check_signature("inputs", [v.size for v in arguments], [math.prod(b.shape) for b in loaded.program.inputs])
        results = loaded(dict(zip(names, arguments, strict=True)))
        return [results[binding.name] for binding in loaded.program.outputs]

    @cached_property
    def _executable(self) -> HostExecutable:
        from torq_byoc.host_module import build_host, deserialize

        for partition in self.partitions:
            _ = partition.loaded
        return build_host(deserialize(self.host))

    def _arguments(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        expected = {spec.name: spec for spec in self.facts.inputs}
        missing, unknown = sorted(set(expected) - set(inputs)), sorted(set(inputs) - set(expected))
        if missing or unknown:
            why, remedy = unlike_names(missing, unknown, expected)
            raise CalibrationError(
                "the input names are not those of the model",
                where=self.facts.model,
                why=why,
                remedy=remedy,
            )
        return [_checked(np.asarray(inputs[name]), spec) for name, spec in expected.items()]

    def decisions(self) -> DecisionRecord:
        """The complete record of all partitions, which as an override compiles to the same programs."""
        return DecisionRecord.union(DecisionRecord.loads(partition.facts.decisions) for partition in self.partitions)

    def to_bytes(self) -> bytes:
        """The container's bytes: the same for the same compilation, whatever the machine."""
        sections = {"model": msgspec.json.encode(self.facts, order="sorted")}
        for index, partition in enumerate(self.partitions):
            sections[f"partition/{index}/facts"] = msgspec.json.encode(partition.facts, order="sorted")
            for name, data in unpack_container(partition.blob).items():
                sections[f"partition/{index}/{name}"] = data
        if self.host:
            sections["host"] = self.host
        return pack_container(sections)

    def save(self, path: str | Path) -> None:
        """Write the ``.torq`` container; nothing is left behind when writing fails."""
        write_file_atomically(Path(path), self.to_bytes())


def load(path: str | Path) -> CompiledModel:
    """Read a ``.torq`` container.

    Raises:
        ProgramFormatError: the file is not a container of this version, is truncated or corrupted.
    """
    sections = read_container(Path(path))
    facts = _decode(sections, "model", ModelFacts)
    if facts.format != FORMAT:
        raise ProgramFormatError(
            "the container holds a model in another format",
            where=str(path),
            why=f"its format is {facts.format}, this version reads {FORMAT}",
            remedy="compile the model again with this version",
        )
    partitions: list[Partition] = []
    while f"partition/{len(partitions)}/facts" in sections:
        prefix = f"partition/{len(partitions)}/"
        own = {name[len(prefix) :]: data for name, data in sections.items() if name.startswith(prefix)}
        partition_facts = _decode(sections, f"{prefix}facts", PartitionFacts)
        del own["facts"]
        partitions.append(Partition(partition_facts, pack_container(own)))
    known = ("model", "host", *(f"partition/{index}/" for index in range(len(partitions))))
    unknown = [name for name in sections if not name.startswith(known)]
    if unknown:
        raise ProgramFormatError(
            "the container holds parts that belong to nothing",
            where=str(path),
            why=f"sections {', '.join(unknown)}",
            remedy="compile the model again",
        )
    host = sections.get("host", b"")
    if facts.direct and len(partitions) != 1 or not facts.direct and not host:
        raise ProgramFormatError(
            "the container lacks a part",
            where=str(path),
            why=f"{len(partitions)} programs, host module {'present' if host else 'absent'}",
            remedy="compile the model again",
        )
    return CompiledModel(facts, tuple(partitions), host)


def program_reference(blob: bytes) -> bytes:
    """What a host module inside a container carries instead of a program: a reference by content."""
    return reference_to(hashlib.sha256(blob).hexdigest())


def _decode(sections: Mapping[str, bytes], name: str, kind: type) -> Any:
    try:
        return msgspec.json.decode(sections[name], type=kind)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProgramFormatError(
            f"section {name!r} cannot be read", why=str(error), remedy="compile the model again"
        ) from error


def _check_signature(what: str, expected: list[int], actual: list[int]) -> None:
    """Refuse a model whose signature is not that of its programs."""
    if expected != actual:
        raise ProgramFormatError(
            f"the model's {what} are not those of its programs",
            why=f"elements {expected} against {actual}",
            remedy="compile the model again",
        )


def _numpy_type(name: str) -> np.dtype:
    return DType(name).numpy if name == DType.BF16.value else np.dtype(name)


def _checked(value: np.ndarray, spec: TensorSpec) -> np.ndarray:
    if value.shape != spec.shape:
        raise ShapeError(
            f"input {spec.name} has another shape than the model",
            where=spec.name,
            why=f"it is {list(value.shape)}, the model was compiled for {list(spec.shape)}",
            remedy="reshape it, or compile the model with --shape",
        )
    return np.asarray(as_type(value, _numpy_type(spec.dtype), "input", spec.name), order="C")
