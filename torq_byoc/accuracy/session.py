"""Samples on their way through all stages of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from torq_byoc.accuracy.causes.attribution import layer_deviations
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.evaluation_data import EvaluationData
from torq_byoc.accuracy.layers.import_check import ImportCheck
from torq_byoc.accuracy.layers.layer_check import LayerCheck
from torq_byoc.accuracy.programs.program_check import ProgramCheck
from torq_byoc.accuracy.references.float_reference import (
    EVALUATOR,
    FloatReference,
    OnnxRuntime,
    PythonReference,
)
from torq_byoc.accuracy.stages import FloatModel, Stages
from torq_byoc.accuracy.verdict.labels import LabelCheck
from torq_byoc.accuracy.verdict.output_check import OutputCheck
from torq_byoc.errors import VerificationError
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.output_parts import OutputPart, output_parts
from torq_byoc.report.environment import u8s8_is_exact

Feeds = Mapping[str, np.ndarray]

INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QGemm", "QLinearConv", "QLinearMatMul"})
"""Operators that onnxruntime computes with kernels for bytes."""
MOST_NAMES = 6
"""Layers that a remark names."""


class Session:
    """Takes in evaluation data once; what is kept of a sample are sums.

    Args:
        stages: of the model.
        evaluation: the samples.
        layer_samples: on how many of them, evenly spread, every layer is looked at.
        keep_outputs: keep the outputs of all samples in ``wanted`` (float model) and ``found`` (NPU).

    Attributes:
        parts: of the outputs.
        reference: who runs the float model.
        notes: what that leaves unchecked, as sentences.
        outputs, layers, labels: what is gathered; no labels without any in the data.
        close: samples on which every layer was looked at, with the float model's outputs.
        worst: number of the one of these whose outputs are worst, or which shows a wrong program.
        refused: why the programs cannot be run; None where they can.
    """

    def __init__(self, stages: Stages, evaluation: EvaluationData, layer_samples: int, *, keep_outputs: bool) -> None:
        self._stages, self._evaluation, self._keep = stages, evaluation, keep_outputs
        self._looked_at = evaluation.spread(layer_samples)
        self._first = stages.prepared.graph.output[0].name
        self._programs, self._program_deviations = ProgramCheck(stages), tuple[Deviation, ...]()
        self.parts = output_parts(stages.prepared)
        first = next(iter(evaluation))
        self.reference, self.notes = _reference(stages, first)
        self._imports = _import_check(self.reference, stages)
        if stages.float_model:
            self.reference, notes = _float_reference(stages.float_model, first)
            self.notes = (*self.notes, *notes)
        self.outputs, self.layers = OutputCheck(self.parts), LayerCheck(stages)
        self.labels = None
        if evaluation.labels is not None:
            self.labels = LabelCheck(evaluation.labels, evaluation.count, evaluation.rows)
        self.close: list[tuple[Feeds, Arrays]] = []
        self.worst, self._least = 0, np.inf
        self.refused: VerificationError | None = None
        self.wanted: list[Arrays] = []
        self.found: list[Arrays] = []

    def run(self, step: Callable[[str], None]) -> None:
        """Go through all samples; ``step`` is called before each."""
        for index, feeds in enumerate(self._evaluation):
            step(f"sample {index + 1} of {self._evaluation.count}")
            wanted = self.reference.outputs(feeds)
            found = self._run_programs(feeds)
            if found is not None:
                self._take(wanted, found)
            if index in self._looked_at:
                self._look_at(index, feeds, wanted, found)

    def _run_programs(self, feeds: Feeds) -> Arrays | None:
        """What the NPU makes of a sample; None where its programs are refused before they run."""
        if self.refused is None:
            try:
                return self._stages.compiled.run(feeds)
            except VerificationError as error:
                self.refused = error
        return None

    def _take(self, wanted: Arrays, found: Arrays) -> None:
        """Take in the outputs of the float model and of the programs."""
        self.outputs.take(wanted, found)
        if self.labels:
            self.labels.take(wanted[self._first], found[self._first])
        if self._keep:
            self.wanted.append(wanted)
            self.found.append(found)

    def _look_at(self, index: int, feeds: Feeds, wanted: Arrays, found: Arrays | None) -> None:
        """Run every stage between; of wrong programs one sample says enough."""
        self.close.append((feeds, wanted))
        self.layers.take(feeds)
        if self._imports:
            self._imports.take(feeds)
        least = min(_sqnr(part, wanted, found) for part in self.parts) if found else -np.inf
        if not self._program_deviations:
            self._program_deviations = self._programs.deviations(feeds)
            least = -np.inf if self._program_deviations else least
        if least < self._least:
            self.worst, self._least = index, least

    def remarks(self) -> tuple[str, ...]:
        """What figures of layers do not say, or are not held against, as sentences."""
        return (*self.layers.remarks(), *self._alone())

    def _alone(self) -> tuple[str, ...]:
        """What is not compared with the float model that a quantized one was made from."""
        rows = self.layers.rows() if self._stages.float_model else ()
        alone = [row.layer.node for row in rows if row.float_name is None]
        if not alone:
            return ()
        names = ", ".join(alone[:MOST_NAMES]) + (", ..." if len(alone) > MOST_NAMES else "")
        whole = f"{len(alone)} of {len(rows)} layers are not to be found in the float model by name"
        return (f"{whole}: what is wrong in them shows in those behind ({names})",)

    def deviations(self) -> tuple[Deviation, ...]:
        """Errors by stage and layer, in the order of the stages."""
        imports = self._imports.deviations() if self._imports else ()
        programs = self._program_deviations or (() if self.refused is None else (_refusal(self.refused),))
        return (*imports, *layer_deviations(self.layers.rows()), *programs)


def _refusal(error: VerificationError) -> Deviation:
    """Of a program that only the verifier has something against."""
    return Deviation(Stage.CODE_GENERATION, error.where, "", True, error.what, f"the program is refused: {error.why}")


def _sqnr(part: OutputPart, wanted: Arrays, found: Arrays) -> float:
    return sqnr(part.of(wanted[part.output]), part.of(found[part.output].reshape(wanted[part.output].shape)))


def _reference(stages: Stages, feeds: Feeds) -> tuple[FloatReference, tuple[str, ...]]:
    """Who runs the model as given, and what that leaves unchecked."""
    if _multiplies_bytes(stages.original) and not u8s8_is_exact():
        reason = "onnxruntime multiplies unsigned by signed bytes with saturation on this CPU"
        return PythonReference(stages.prepared), (_unchecked(reason),)
    reference, reason = _runner(stages.original, stages.prepared, feeds)
    return reference, (_unchecked(reason),) if reason else ()


def _float_reference(model: FloatModel, feeds: Feeds) -> tuple[FloatReference, tuple[str, ...]]:
    """Who runs the float model that a quantized one was made from, and what there is to say about it."""
    reference, reason = _runner(model.given, model.prepared, feeds)
    return reference, (f"the float model runs as it is prepared in {EVALUATOR}: {reason}",) if reason else ()


def _runner(given: onnx.ModelProto, prepared: onnx.ModelProto, feeds: Feeds) -> tuple[FloatReference, str]:
    """onnxruntime on the model as given, else the evaluator on the prepared one, and the reason."""
    try:
        runtime = OnnxRuntime(given)
        runtime.tensors(feeds)
        return runtime, ""
    except Exception as error:  # noqa: BLE001 - it is optional, and has no base class for what it refuses
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        return PythonReference(prepared), f"onnxruntime does not run the model as given ({reason})"


def _unchecked(reason: str) -> str:
    return f"the reference is the prepared model in {EVALUATOR}, and import is not checked: {reason}"


def _multiplies_bytes(model: onnx.ModelProto) -> bool:
    return any(node.op_type in INTEGER_PRODUCTS for node in model.graph.node)


def _import_check(reference: FloatReference, stages: Stages) -> ImportCheck | None:
    """None where nobody runs the model as given."""
    return ImportCheck(reference, stages.prepared) if isinstance(reference, OnnxRuntime) else None
