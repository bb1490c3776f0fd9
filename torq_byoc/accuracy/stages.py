"""One model at every stage of its way to the NPU, side by side: what the accuracy check compares.

A stage can be exchanged for another (``dataclasses.replace``): a program from a container in place of the one that is
compiled here, or a stage with a known fault, to see that the check finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import onnx

from torq_byoc.accuracy.programs.intent import Intent, intent_of
from torq_byoc.codegen.passes import NAMES
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.placement import place
from torq_byoc.compiled_model import CompiledModel, Partition
from torq_byoc.compiler import compile_model
from torq_byoc.host_module import npu_functions
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.quantize.planning.planner import Planned
from torq_byoc.relay_patterns import PartitionedModule, lower_partitions


@dataclass(frozen=True, eq=False)
class FloatModel:
    """The float model that a model with scales was made from.

    Attributes:
        given: as the user gave it.
        prepared: static, folded, every node named.
    """

    given: onnx.ModelProto
    prepared: onnx.ModelProto


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of one model.

    Attributes:
        original: as the user gave it.
        prepared: static, folded, every node named: what is quantized.
        precise: prepared, and quantized (QDQ) where the precision asks for integers; else the same as ``prepared``.
        precision: "quantized", "int8", "int16", "mixed" or "bf16".
        parted: the Relax module with its partitions.
        graphs: operator graph of every partition by symbol: integers, scales gone.
        compiled: the verified programs and the host module.
        options: what was asked for.
        planned: the plan of a float model in mixed precision, and what it reaches.
        float_model: what a model that carries its scales is held against; without one it is held against itself.
    """

    original: onnx.ModelProto
    prepared: onnx.ModelProto
    precise: onnx.ModelProto
    precision: str
    parted: PartitionedModule
    graphs: Mapping[str, OpGraph]
    compiled: CompiledModel
    options: Options
    planned: Planned | None = None
    float_model: FloatModel | None = None

    @property
    def carries_scales(self) -> bool:
        """Whether the model came with its scales and was not quantized here."""
        codes = ("QuantizeLinear", "DequantizeLinear")
        mixed = self.precision == "mixed" and any(node.op_type in codes for node in self.prepared.graph.node)
        return mixed or self.precision == "quantized"

    @property
    def is_held_against_itself(self) -> bool:
        """Whether nothing says what its scales should be."""
        return self.carries_scales and self.float_model is None

    @cached_property
    def intents(self) -> Mapping[str, Intent]:
        """What every program is meant to do, by symbol.

        Raises:
            TorqError: the compiled model is not one of these stages' model.
        """
        decisions = self.compiled.decisions()
        return {
            partition.facts.symbol: intent_of(
                self.graphs[partition.facts.symbol],
                decisions,
                replace(self.options, disabled_passes=_left_out(partition)),
            )
            for partition in self.compiled.partitions
        }


def _left_out(partition: Partition) -> tuple[str, ...]:
    """Passes that a program was made without: those that report nothing."""
    reported = {name for name, _ in partition.facts.passes}
    return tuple(name for name in NAMES if name not in reported)


def stages_of(model: onnx.ModelProto, options: Options, *, name: str, compiled: CompiledModel | None = None) -> Stages:
    """Take a model through all stages.

    A program that the verifier refuses is part of them: what is wrong with it is for the check to say.

    Args:
        model: as ``frontend.load_model`` returns it.
        options: machine, precision, calibration, decisions.
        name: how reports call the model.
        compiled: the result of an earlier compilation, to be checked in place of one made here.

    Raises:
        TorqError: anything wrong with the model or the options.
    """
    options = replace(options, keep_refused=True)
    placement = place(model, options, StageClock())
    return Stages(
        original=model,
        prepared=placement.prepared,
        precise=placement.model,
        precision=placement.precision,
        parted=placement.parted,
        graphs=lower_partitions(npu_functions(placement.parted.module), options.config),
        compiled=compiled or compile_model(model, options, name=name),
        options=options,
        planned=placement.planned,
    )
