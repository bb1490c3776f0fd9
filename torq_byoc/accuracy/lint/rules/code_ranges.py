"""Stored results whose scales do not fit the data: clipped far more than a calibrator would, or hardly resolved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from torq_byoc.accuracy.layers.codes import Codes, codes_of
from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.accuracy.lint.watch import Watch
from torq_byoc.frontend.graph import constant_tensors, producers
from torq_byoc.quantize.evaluation.distance import sqnr_of
from torq_byoc.quantize.evaluation.evaluator import Arrays

MOST_CLIPPED = 0.05
"""Part of the values outside the range; calibrators that clip leave a thousandth or less out."""
MOST_LOST = 12.0
"""Decibels to which clipping alone takes a result: a calibrator weighs it against rounding, which is far finer."""
FEWEST_CODES = 8
"""Steps that a result spans at least if its scale is of its kind."""
COARSE = 20.0
"""Decibels to which rounding alone takes a result: a tenth of its amplitude."""
FEWEST_VALUES = 64
"""Values of a result that say something about it."""
BOUNDED = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"})
"""Operators whose scale stands for what they can give, not for what they do."""
CLIP_ENDS = (1.0, 6.0)
"""Ends of clips that a quantizer may do in their place, beside zero."""


def code_ranges(subject: Subject) -> Watch:
    """Every stored result of a model that came with its scales, over the samples.

    What is made of a tensor with a finding has none of its own.
    """
    return _CodeRanges(subject.precise.graph if subject.carries_scales else onnx.GraphProto())


class _CodeRanges(Watch):
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph, self._makers = graph, producers(graph)
        constants = constant_tensors(graph)
        self._uses: dict[str, _Use] = {}
        for node in graph.node:
            codes = codes_of(node, node.output[0], constants) if node.op_type == "QuantizeLinear" else None
            if codes:
                self._uses[node.output[0]] = _Use(codes)

    def take(self, tensors: Arrays) -> None:
        """Add one sample to every stored result."""
        for node in self._graph.node:
            if node.output[0] in self._uses and node.input[0] in tensors:
                self._uses[node.output[0]].take(np.asarray(tensors[node.input[0]], np.float64))

    def findings(self) -> Iterator[LintFinding]:
        """In the order of the model."""
        followed: set[str] = set()
        for node in self._graph.node:
            if followed.intersection(node.input):
                followed.update(node.output)
            elif node.output[0] in self._uses:
                finding = self._finding(node.input[0], self._uses[node.output[0]])
                if finding:
                    followed.update(node.output)
                    yield finding

    def _finding(self, name: str, use: _Use) -> LintFinding | None:
        maker = self._makers.get(name)
        fact = use.clipped() or ("" if maker and maker.op_type in BOUNDED else use.coarse())
        if not fact:
            return None
        if maker is None:
            remedy = f"give data in the range that the model was calibrated for, or check the scale of {name}"
        else:
            remedy = f"check the scale and the zero point of {name}; quantize the float model again if they are damaged"
        where = f"input {name}" if maker is None else f"{maker.name}, tensor {name}"
        return LintFinding("code-ranges", Severity.WARNING, where, f"{fact} (over {use.samples} samples)", remedy)


class _Use:
    """What the samples make of one quantization; NaN and infinity are another rule's."""

    def __init__(self, codes: Codes) -> None:
        self.codes, self.samples = codes, 0
        self._low, self._high = (float(codes.dequantize(np.array(limit))) for limit in codes.limits)
        self._first = 0.0 if codes.zero_point == codes.limits[0] else None
        self._last = self._high if any(abs(self._high - end) <= codes.scale for end in CLIP_ENDS) else None
        self._values = self._outside = 0
        self._least, self._most = np.inf, -np.inf
        self._cut, self._rounded = _Loss(), _Loss()
        self._first_code, self._last_code = codes.limits[::-1]
        self._distinct = np.empty(0)

    def take(self, values: np.ndarray) -> None:
        """One sample."""
        self.samples += 1
        values = values[np.isfinite(values)]
        meant = np.clip(values, self._first, self._last)
        self._values += values.size
        scale = self.codes.scale
        self._outside += int(np.count_nonzero((meant < self._low - scale) | (meant > self._high + scale)))
        self._least = float(values.min(initial=self._least))
        self._most = float(values.max(initial=self._most))
        self._cut.add(meant, np.clip(meant, self._low, self._high))
        self._resolve(np.clip(values, self._low, self._high))

    def _resolve(self, inside: np.ndarray) -> None:
        """Count the codes of one sample, as long as they are few."""
        if self._last_code - self._first_code >= FEWEST_CODES:
            return
        found = self.codes.quantize(inside).astype(np.int64)
        self._first_code = int(found.min(initial=self._first_code))
        self._last_code = int(found.max(initial=self._last_code))
        self._rounded.add(inside, self.codes.dequantize(found))
        if self._distinct.size <= FEWEST_CODES:
            self._distinct = np.unique(np.append(self._distinct, inside))

    def clipped(self) -> str:
        """Why the range is too narrow; empty when it is not, or does the work of a relu or a clip."""
        if self._values < FEWEST_VALUES:
            return ""
        outside = self._outside / self._values
        if outside <= MOST_CLIPPED or self._cut.sqnr >= MOST_LOST:
            return ""
        return (
            f"{outside:.1%} of the values lie outside {self._low:.4g} .. {self._high:.4g}, all that its codes can say"
            f" (they reach from {self._least:.4g} to {self._most:.4g}); a calibrator leaves a thousandth out"
        )

    def coarse(self) -> str:
        """Why the steps are too large; empty when they are not."""
        used = self._last_code - self._first_code + 1
        few = self._values < FEWEST_VALUES or used > FEWEST_CODES
        if few or self._distinct.size <= used or self._rounded.sqnr >= COARSE:
            return ""
        first, last = self.codes.limits
        return (
            f"the values use {used} of {last - first + 1} codes: they reach from {self._least:.4g} to"
            f" {self._most:.4g}, in steps of {self.codes.scale:.4g}"
        )


class _Loss:
    """Signal to noise of values that come in pieces."""

    def __init__(self) -> None:
        self._signal = self._noise = 0.0

    def add(self, wanted: np.ndarray, found: np.ndarray) -> None:
        """One piece."""
        self._signal += float(np.square(wanted).sum())
        self._noise += float(np.square(found - wanted).sum())

    @property
    def sqnr(self) -> float:
        """In dB, as ``distance.sqnr`` has it."""
        return sqnr_of(self._signal, self._noise)
