"""The node test cases of the onnx package: one operator each, with its inputs and the results that ONNX defines."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.case.node as generators
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import torq_byoc
from tests.frontend.onnx_tools import run_reference
from torq_byoc.errors import InternalError, TorqError

_FOLDER = Path(generators.__file__).parent
GENERATORS = sorted(
    ".".join(path.relative_to(_FOLDER).with_suffix("").parts) for path in _FOLDER.rglob("*.py") if path.stem[0] != "_"
)
"""Modules of the onnx package, each with the cases of one operator or a few."""

BY_ROUNDED_LENGTH = frozenset(
    {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}
)
"""Cases whose data divide by the length before rounding; onnxruntime and the operator's text take the rounded one."""

BF16_SHARE = 2.0**-5
"""Share of the largest magnitude by which a chain of bf16 operators may differ: 2^-9 each, a dozen of them."""

NARROW_ROUNDINGS = 4
"""Units in the last place of the largest magnitude allowed to operators on float16 and bfloat16 tensors."""


@dataclass(frozen=True)
class NodeCase:
    """A model of one operator, its inputs by name, and its outputs in order."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, object]
    results: Sequence[object]
    rtol: float
    atol: float

    def frozen(self) -> NodeCase:
        """The case with every tensor input but the first stored in the model."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        names = [value.name for value in model.graph.input]
        stored = [name for name in names[1:] if isinstance(self.feeds[name], (np.ndarray, np.generic))]
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(self.feeds[n]), n) for n in stored)
        kept = [
            onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model.graph.input if v.name not in stored
        ]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        feeds = {name: value for name, value in self.feeds.items() if name not in stored}
        return NodeCase(self.name, model, feeds, self.results, self.rtol, self.atol)


@functools.cache
def cases_of(generator: str) -> tuple[NodeCase, ...]:
    """The cases that one generator module defines, in name order."""
    before = len(generators._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{generators.__name__}.{generator}")
    found = [_case(case) for case in generators._NodeTestCases[before:]]
    return tuple(sorted(found, key=lambda case: case.name))


def _case(case: object) -> NodeCase:
    inputs, outputs = case.data_sets[0]
    names = [value.name for value in case.model.graph.input]
    arrays = [_array(value) for value in inputs]
    return NodeCase(
        case.name,
        case.model,
        dict(zip(names, arrays, strict=True)),
        [_array(value) for value in outputs],
        case.rtol,
        case.atol,
    )


def _array(value: object) -> object:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def fault(case: NodeCase) -> str:
    """What is wrong with compiling and running a case; empty when it is right, or refused by name.

    A refusal is a TorqError with all four parts from the compiler; anything that goes wrong later is a fault.
    """
    try:
        compiled = torq_byoc.compile(case.model)
    except InternalError as error:
        return f"internal error: {error}"
    except TorqError as error:
        complete = error.what and error.where and error.why and error.remedy
        return "" if complete else f"an error that lacks a part: {error.to_json()}"
    except Exception as error:
        return f"raw error: {type(error).__name__}: {error}"
    try:
        outputs = compiled.run({name: np.asarray(value) for name, value in case.feeds.items()})
    except Exception as error:
        return f"error at run time: {type(error).__name__}: {error}"
    on_npu = bool(compiled.partitions)
    found = list(outputs.values())
    wanted = run_reference(case.model, case.feeds) if case.name in BY_ROUNDED_LENGTH else case.results
    difference = _differences(found, wanted, case, on_npu)
    return _differences(found, _on_rounded_inputs(case), case, on_npu) if difference and on_npu else difference


def _on_rounded_inputs(case: NodeCase) -> Sequence[object]:
    """Results for inputs as bf16 holds them: numbers beyond its digits are other numbers to the NPU."""
    feeds = {name: _as_bf16(value) for name, value in case.feeds.items()}
    return ReferenceEvaluator(case.model).run(None, feeds)


def _as_bf16(value: object) -> object:
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    bits = value.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _differences(found: Sequence[np.ndarray], wanted: Sequence[object], case: NodeCase, on_npu: bool) -> str:
    for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if text := _difference(a, np.asarray(b), case, on_npu):
            return f"output {index} {text}"
    return ""


def _difference(found: np.ndarray, wanted: np.ndarray, case: NodeCase, on_npu: bool) -> str:
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"is {found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}"
    if wanted.dtype.kind in "biu":
        wrong = int(np.count_nonzero(found != wanted))
        return f"has {wrong} of {wanted.size} values wrong" if wrong else ""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "has other infinities or NaN"
    largest = float(np.abs(b[finite]).max(initial=0))
    bound = max(case.atol, 1e-6) + case.rtol * np.abs(b[finite])
    if wanted.dtype.itemsize == 2:
        bound = np.maximum(bound, NARROW_ROUNDINGS * float(np.spacing(np.array(largest, wanted.dtype))))
    if on_npu:
        bound = np.maximum(bound, BF16_SHARE * largest)
    error = np.abs(a[finite] - b[finite])
    return f"is off by {error.max():.3g} of {largest:.3g}" if not (error <= bound).all() else ""
