"""The tuning-record database: what a search found, by machine and graph, as a file that later compilations reuse.

Format 1 is one JSON object.  ``machines`` is keyed by the content hash of the hardware description (its name does not
count); below it ``graphs`` is keyed by ``record_keys.graph_key`` and ``layers`` by ``record_keys.layer_key``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from torq_byoc.compilation.record_keys import graph_key, named, numbered
from torq_byoc.errors import ScheduleError
from torq_byoc.files import Expected, read_text
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.config_data import content_hash
from torq_byoc.npu_model.container import write_file_atomically
from torq_byoc.npu_model.timing import Profile
from torq_byoc.schedules.record import DecisionRecord, NodeOverride

FORMAT = 1
RECORDS_FILE = Expected(ScheduleError, "the tuning records", "give a file that `torq tune --records` wrote", 256 << 20)


class GraphEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found for one graph on one machine.

    Attributes:
        model: the model it was found for, for messages.
        profile: timing profile of the cycles.
        cycles: of the program that the record gives.
        default_cycles: of the program without a record.
        record: the decisions, complete, with numbered names (``record_keys.numbered``).
    """

    model: str
    profile: str
    cycles: int
    default_cycles: int
    record: dict[str, Any]

    def __post_init__(self) -> None:
        Profile(self.profile)  # a ValueError here makes the file unreadable
        if not 0 <= self.cycles <= self.default_cycles:
            raise ValueError(f"{self.cycles} cycles against {self.default_cycles} by default")
        _decoded(self.record)

    def decisions(self, graph: OpGraph) -> DecisionRecord:
        """The record with the names of a graph of the entry's key.

        Raises:
            ScheduleError: it names nodes that the graph does not have.
        """
        return named(DecisionRecord.from_json(self.record), graph)


class MachineEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found on one machine.

    Attributes:
        name: how the machine was called, for messages.
        graphs: by graph key.
        layers: by layer key, the decision about one node as ``DecisionRecord.nodes`` has it.
    """

    name: str
    graphs: dict[str, GraphEntry] = {}
    layers: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        _decoded({"nodes": self.layers})

    def hints(self) -> Mapping[str, NodeOverride]:
        """Decisions about single layers by key: where a search may start, never what a compilation uses."""
        return DecisionRecord.from_json({"nodes": self.layers}).nodes


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    machines: dict[str, MachineEntry] = {}


@dataclass(frozen=True)
class RecordDatabase:
    """Tuning records by content hash of the machine; immutable, ``with_result`` gives a new one."""

    machines: Mapping[str, MachineEntry] = field(default_factory=dict)

    def machine(self, config: NpuConfig) -> MachineEntry | None:
        """What is known of a machine, whatever its name."""
        return self.machines.get(content_hash(config))

    def entry(self, config: NpuConfig, graph: OpGraph) -> GraphEntry | None:
        """What was found for a graph on a machine."""
        machine = self.machine(config)
        return None if machine is None else machine.graphs.get(graph_key(graph))

    def with_result(
        self,
        config: NpuConfig,
        graph: OpGraph,
        found: DecisionRecord,
        *,
        model: str,
        profile: str,
        cycles: tuple[int, int],
        layers: Mapping[str, NodeOverride],
    ) -> RecordDatabase:
        """The database with a graph's record, in the place of an older one, and decisions about layers.

        Args:
            config: the machine.
            graph: the graph.
            found: the complete record of its best schedule.
            model, profile: see ``GraphEntry``.
            cycles: with the record, and by default.
            layers: layer key -> decision.
        """
        own = self.machine(config) or MachineEntry(config.name)
        entry = GraphEntry(model, profile, *cycles, numbered(found, graph).to_json())
        known = own.layers | DecisionRecord(layers).to_json()["nodes"]
        changed = MachineEntry(own.name, own.graphs | {graph_key(graph): entry}, known)
        return RecordDatabase({**self.machines, content_hash(config): changed})

    def dumps(self) -> str:
        """The file's text, keys sorted: equal for equal databases."""
        data = msgspec.json.encode(_File(FORMAT, dict(self.machines)), order="sorted")
        return msgspec.json.format(data, indent=1).decode() + "\n"

    @classmethod
    def loads(cls, text: str, where: str) -> RecordDatabase:
        """Read a file's text.

        Args:
            text: as ``dumps`` gives it.
            where: the file's name, for messages.

        Raises:
            ScheduleError: it is not JSON, not a database, of another format, or a record in it is malformed.
        """
        try:
            found = msgspec.json.decode(text.encode(), type=_Version)
            if found.format != FORMAT:
                raise RECORDS_FILE.refusal(
                    where, f"they are of format {found.format}, this version reads format {FORMAT}"
                )
            return cls(msgspec.json.decode(text.encode(), type=_File).machines)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise RECORDS_FILE.refusal(where, str(problem)) from problem

    @classmethod
    def read(cls, path: Path) -> RecordDatabase:
        """Read a file.

        Raises:
            ScheduleError: it cannot be read, or as ``loads``.
        """
        return cls.loads(read_text(path, RECORDS_FILE), str(path))

    def write(self, path: Path) -> None:
        """Write the file whole or not at all.

        Raises:
            EnvironmentProblem: it cannot be written.
        """
        write_file_atomically(path, self.dumps().encode())


class _Version(msgspec.Struct):
    format: int


def _decoded(data: dict[str, Any]) -> DecisionRecord:
    """A record of the file; what is wrong with it as the error that msgspec reports with its place."""
    try:
        return DecisionRecord.from_json(data)
    except ScheduleError as error:
        raise ValueError(f"{error.where}: {error.why}") from error
