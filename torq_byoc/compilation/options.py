"""What a compilation is asked for, and what of it applies to a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from torq_byoc.compilation.record_keys import Setting
from torq_byoc.compilation.tuning_records import RecordDatabase
from torq_byoc.errors import QuantizationError, require_known
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize.choose_ranges import AUTO
from torq_byoc.quantize.planning.target import PrecisionTarget
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.relay_patterns.registry import Precision
from torq_byoc.schedules.record import DecisionRecord

PRECISIONS = ("auto", "int8", "int16", "bf16", "mixed")

_QUANTIZED = frozenset({"QuantizeLinear", "ConvInteger", "MatMulInteger"})
"""Operators that make a prepared model a quantized one: they fix the integers that are computed with."""

Observer = Callable[[str, str], None]
"""Receives (level and pass, text) for every printed level of IR."""


@dataclass(frozen=True, eq=False)
class Options:
    """Everything that a compilation depends on beside the model.

    ``disabled_rewrites`` are names of rewrites that quantization leaves out (``quantize.automatic.NAMES``).
    ``profile`` is the timing profile whose tuning records count; without ``records`` it has no effect.  ``plan`` and
    ``target`` are for mixed precision: what every tensor gets, or what the outputs have to reach.

    With ``keep_refused`` a program that the verifier refuses is kept, for a check that says what is wrong with it; no
    runtime runs it.
    """

    config: NpuConfig = field(default_factory=NpuConfig)
    precision: str = "auto"
    calibration: Mapping[str, np.ndarray] | None = None
    calibration_method: str = AUTO
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    decisions: DecisionRecord | None = None
    effort: int = 1
    disabled_passes: Collection[str] = ()
    disabled_rewrites: Collection[str] = ()
    records: RecordDatabase | None = None
    profile: str = "reference"
    plan: PrecisionPlan | None = None
    target: PrecisionTarget | None = None
    observe: Observer | None = None
    progress: Callable[[str], None] | None = None
    keep_refused: bool = False

    @property
    def setting(self) -> Setting:
        """The setting that a tuning record must be of to be used."""
        return Setting.of(self.profile, self.disabled_passes)

    def show(self, level: str, text: Callable[[], str]) -> None:
        """Hand a level of IR to the observer; its text is made only when somebody looks."""
        if self.observe:
            self.observe(level, text())


def resolve_precision(model: onnx.ModelProto, options: Options) -> str:
    """The precision that a request means for a model: "quantized", "int8", "int16", "bf16" or "mixed".

    Raises:
        QuantizationError: int8, int16 or mixed is asked of a float model without calibration data, or bf16 of a
            quantized model.
    """
    wanted = options.precision
    quantized = is_quantized(model)
    require_known(QuantizationError, "precision", [wanted], PRECISIONS, where="--precision")
    if quantized:
        if wanted == "bf16":
            raise QuantizationError(
                "a quantized model cannot be compiled for bf16",
                where=model.graph.name,
                why="its operators on integers fix the types",
                remedy="use --precision auto, or start from the float model",
            )
        if wanted == "mixed" and (options.plan or options.target):
            raise QuantizationError(
                "a quantized model takes no precision plan and no target",
                where=model.graph.name,
                why="its operators on integers fix the types; mixed precision only runs its float operators in bf16",
                remedy="start from the float model, or leave them out",
            )
        return "mixed" if wanted == "mixed" else "quantized"
    if wanted == "auto":
        return "int8" if options.calibration is not None else "bf16"
    planned = options.plan is not None or options.target is not None
    if wanted == "mixed" and options.calibration is None and _reads_codes(model) and not planned:
        return wanted
    if wanted != "bf16" and options.calibration is None:
        raise QuantizationError(
            f"{wanted} needs calibration data",
            where=model.graph.name,
            why="the model is float, and activation ranges come from data",
            remedy="give --calib FILE.npz, or use --precision bf16",
        )
    return wanted


def is_quantized(model: onnx.ModelProto) -> bool:
    """Whether operators of a prepared model fix the integers that are computed with."""
    return any(node.op_type in _QUANTIZED for node in model.graph.node)


def _reads_codes(model: onnx.ModelProto) -> bool:
    """Whether a model without quantized results dequantizes something: inputs or weights."""
    return any(node.op_type == "DequantizeLinear" for node in model.graph.node)


def arithmetic_of(precision: str) -> Precision:
    """The pattern tables for a resolved precision: all integer types share one."""
    tables: dict[str, Precision] = {"bf16": "bf16", "mixed": "mixed"}
    return tables.get(precision, "quantized")
