"""What ``torq demo`` does, as a function."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from torq_byoc.cli.benchmark import measured
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.report.trace import write_trace

TEST_IMAGES = 540
MAX_LOSS = 0.003
"""Accuracy that the int8 model may lose against the float model: 0.3 points."""

_SHAPE = (1, 1, 8, 8)


def demonstrate(trace: Path, profile: str, step: Callable[[str], None]) -> dict[str, Any]:
    """Compile the embedded model, run its test split, measure, and write the timeline.

    Args:
        trace: where the timeline goes.
        profile: timing profile.
        step: called before each stage and image.

    Returns:
        The summary of ``torq bench`` with ``accuracy``, ``passed``, ``trace`` and ``seconds``.
    """
    from torq_byoc.compiler import compile as compile_onnx
    from torq_byoc.frontend import load_model, prepare
    from torq_byoc.quantize.data import read_npz
    from torq_byoc.report.baseline import cpu_baseline

    started = time.perf_counter()
    with as_file(files("torq_byoc") / "data") as folder:
        model = load_model(folder / "digits.onnx")
        test = read_npz(folder / "digits_test.npz")
        calibration = read_npz(folder / "digits_calibration.npz")
    step("compile")
    compiled = compile_onnx(model, precision="int8", calibration=calibration, shapes={"image": _SHAPE})
    accuracy = _accuracy(model, compiled, test["image"], test["labels"], step)
    step("CPU baseline")
    feeds = {"image": test["image"][:1]}
    data = measured(compiled, feeds, profile, budget=1.0)
    baseline = cpu_baseline(prepare(model, {"image": _SHAPE}), feeds)
    write_trace(trace, compiled, profile)
    return {
        **data,
        "cpu_baseline": baseline,
        "accuracy": accuracy,
        "passed": accuracy["int8"] >= accuracy["float"] - MAX_LOSS,
        "trace": str(trace),
        "seconds": time.perf_counter() - started,
    }


def _accuracy(
    model: onnx.ModelProto,
    compiled: CompiledModel,
    images: np.ndarray,
    labels: np.ndarray,
    step: Callable[[str], None],
) -> dict[str, Any]:
    """Float and int8 accuracy on the same images, and how often both give the same answer."""
    reference, floats = _float_answers(model, images)
    answers = []
    for index in range(len(images)):
        step("test images")
        answers.append(int(compiled.run({"image": images[index : index + 1]})["logits"].argmax()))
    integers = np.array(answers)
    return {
        "images": len(images),
        "float": float(np.mean(floats == labels)),
        "int8": float(np.mean(integers == labels)),
        "agreement": float(np.mean(integers == floats)),
        "reference": reference,
    }


def _float_answers(model: onnx.ModelProto, images: np.ndarray) -> tuple[str, np.ndarray]:
    """What the float model answers, from onnxruntime with its optimiser off or else ONNX's own evaluator."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        outputs: Any = ReferenceEvaluator(model).run(None, {"image": images})
        return "onnx.reference", outputs[0].argmax(axis=1)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return "onnxruntime", session.run(None, {"image": images})[0].argmax(axis=1)
