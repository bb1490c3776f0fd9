"""The tuning-record database: what a search found, by machine and graph, as a file that later compilations reuse.

Format 2 is one JSON object.  ``machines`` is keyed by the content hash of the hardware description (its name does not
count); below it ``graphs`` is keyed by ``record_keys.graph_key``, with an entry for every ``record_keys.Setting``, and
``layers`` by ``record_keys.layer_key``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from torq_byoc.compilation.record_keys import Setting, graph_key, named, numbered
from torq_byoc.compilation.record_limits import check_limits
from torq_byoc.errors import ScheduleError, TorqError
from torq_byoc.files import Expected, parse_json, read_text
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.config_data import content_hash
from torq_byoc.npu_model.container import write_file_atomically
from torq_byoc.npu_model.timing import Profile
from torq_byoc.schedules.record import DecisionRecord, NodeOverride
from torq_byoc.typed_data import typed

FORMAT = 2
RECORDS_FILE = Expected(ScheduleError, "the tuning records", "give a file that `torq tune --records` wrote", 256 << 20)
MOST_CYCLES = 1 << 48
"""Four days at 800 MHz: no program that was ever simulated takes longer."""


class GraphEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found for one graph on one machine in one setting.

    Attributes:
        model: the model it was found for, for messages.
        profile, disabled_passes: the setting.
        effort: search effort of the default that it was compared with.
        cycles: of the program that the record gives.
        default_cycles: of the program without a record.
        record: the decisions, complete, with numbered names (``record_keys.numbered``).
    """

    model: str
    profile: str
    disabled_passes: tuple[str, ...]
    effort: int
    cycles: int
    default_cycles: int
    record: dict[str, Any]

    def __post_init__(self) -> None:
        Profile(self.profile)  # a ValueError here makes the file unreadable
        if not 1 <= self.cycles <= self.default_cycles <= MOST_CYCLES:
            raise ValueError(
                f"{self.cycles} cycles against {self.default_cycles} by default; "
                f"at least 1, no more than the default, and no more than {MOST_CYCLES} are possible"
            )
        if self.disabled_passes != self.setting.disabled_passes:
            raise ValueError("the disabled passes are not sorted, or one is named twice")
        _decoded(self.record)

    @property
    def setting(self) -> Setting:
        """What it holds for."""
        return Setting.of(self.profile, self.disabled_passes)

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
        graphs: by graph key, one for every setting, in the order of the settings.
        layers: by layer key, the decision about one node as ``DecisionRecord.nodes`` has it.
    """

    name: str
    graphs: dict[str, tuple[GraphEntry, ...]] = {}
    layers: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        _decoded({"nodes": self.layers})
        for entries in self.graphs.values():
            if len({entry.setting for entry in entries}) < len(entries):
                raise ValueError("a graph has two records for one setting")

    def hints(self) -> Mapping[str, NodeOverride]:
        """Decisions about single layers by key: where a search may start, never what a compilation uses."""
        return DecisionRecord.from_json({"nodes": self.layers}).nodes


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    machines: dict[str, MachineEntry] = {}


@dataclass(frozen=True)
class RecordDatabase:
    """Tuning records by content hash of the machine; immutable, ``with_result`` gives a new one.

    ``source`` is the file they were read from, for messages.
    """

    machines: Mapping[str, MachineEntry] = field(default_factory=dict)
    source: str = field(default="", compare=False)

    def machine(self, config: NpuConfig) -> MachineEntry | None:
        """What is known of a machine, whatever its name."""
        return self.machines.get(content_hash(config))

    def entries(self, config: NpuConfig, graph: OpGraph) -> tuple[GraphEntry, ...]:
        """What was found for a graph on a machine, in every setting."""
        machine = self.machine(config)
        return () if machine is None else machine.graphs.get(graph_key(graph), ())

    def entry(self, config: NpuConfig, graph: OpGraph, setting: Setting) -> GraphEntry | None:
        """What was found for a graph on a machine in a setting."""
        return next((entry for entry in self.entries(config, graph) if entry.setting == setting), None)

    def decisions(self, entry: GraphEntry, graph: OpGraph) -> DecisionRecord:
        """The record of an entry with the names of a graph of its key.

        Raises:
            ScheduleError: it names nodes that the graph does not have; says in which file.
        """
        try:
            return entry.decisions(graph)
        except ScheduleError as error:
            raise self.refusal(error) from error

    def refusal(self, problem: TorqError) -> ScheduleError:
        """The error for a record that does not apply to the graph or the machine of its own key."""
        return ScheduleError(
            "a tuning record does not apply to the graph it is filed under",
            where=": ".join(filter(None, (self.source, problem.where))),
            why=f"{problem.what}: {problem.why}" if problem.why else problem.what,
            remedy="tune the model again into another file, or compile without the records",
        )

    def with_result(
        self,
        config: NpuConfig,
        graph: OpGraph,
        found: DecisionRecord,
        *,
        model: str,
        setting: Setting,
        effort: int,
        cycles: tuple[int, int],
        layers: Mapping[str, NodeOverride],
        remeasured: bool = False,
    ) -> RecordDatabase:
        """The database with a graph's record, unless it knows a better one for the setting, and decisions about layers.

        Args:
            config: the machine.
            graph: the graph.
            found: the complete record of its best schedule.
            model, effort: see ``GraphEntry``.
            setting: what the record holds for.
            cycles: with the record, and by default.
            layers: layer key -> decision.
            remeasured: the known record was measured again and is no better than ``found``, whatever it promises.
        """
        known = self.entry(config, graph, setting)
        if known is not None and known.cycles < cycles[0] and not remeasured:
            return self
        own = self.machine(config) or MachineEntry(config.name)
        record = numbered(found, graph).to_json()
        entry = GraphEntry(model, setting.profile, setting.disabled_passes, effort, *cycles, record)
        others = [other for other in self.entries(config, graph) if other.setting != setting]
        entries = tuple(sorted((entry, *others), key=lambda one: one.setting))
        hints = own.layers | DecisionRecord(layers).to_json()["nodes"]
        changed = MachineEntry(own.name, own.graphs | {graph_key(graph): entries}, hints)
        return replace(self, machines={**self.machines, content_hash(config): changed})

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
            data = parse_json(text)
            found = typed(data, _Version)
            if found.format != FORMAT:
                raise RECORDS_FILE.refusal(
                    where, f"they are of format {found.format}, this version reads format {FORMAT}"
                )
            return cls(typed(data, _File).machines, where)
        except (ValueError, RecursionError) as problem:
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
        record = DecisionRecord.from_json(data)
        check_limits(record)
        return record
    except ScheduleError as error:
        raise ValueError(f"{error.where}: {error.why}") from error
