"""The files of a cut: model, data, what else the command needs, and the command itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from torq_byoc.accuracy.causes.attribution import MIN_LOCAL_SQNR
from torq_byoc.accuracy.cutter.cutter import Cut, cut
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.stages import Stages
from torq_byoc.files import new_folder, write_together
from torq_byoc.npu_model.presets import preset_names, to_yaml
from torq_byoc.npz import npz_bytes

MODEL, DATA, EXPECTED, FLOAT = "cut.onnx", "cut.npz", "expected.npz", "float.onnx"
COMMAND = "command.txt"


def bisect(
    stages: Stages, deviations: Sequence[Deviation], feeds: Mapping[str, np.ndarray], folder: Path
) -> Cut | None:
    """Cut out the first layer that is wrong by itself and write its files: defects before errors of quantization.

    Args:
        stages: of the failing model.
        deviations: what its check found.
        feeds: a sample on which it was found.
        folder: for the files.

    Returns:
        The cut; None when no layer is wrong by itself.

    Raises:
        AccuracyError: the layer cannot be cut out.
        EnvironmentProblem: a file cannot be written.
    """
    local = sorted((d for d in deviations if d.local), key=lambda one: one.stage is Stage.QUANTIZATION)
    if not local:
        return None
    made = cut(stages, local[0], feeds)
    write_cut(made, folder)
    return made


def write_cut(made: Cut, folder: Path) -> tuple[Path, ...]:
    """Write a cut into a folder, all of it or nothing.

    Args:
        made: the cut.
        folder: is made where it does not exist.

    Returns:
        The files.  ``command.txt`` holds the command line that shows the failure when it is run in the folder.

    Raises:
        EnvironmentProblem: a file cannot be written.
    """
    files, command = contents(made)
    files[COMMAND] = f"{command}\n".encode()
    with new_folder(folder):
        write_together({folder / name: data for name, data in files.items()})
    return tuple(folder / name for name in files)


def contents(made: Cut) -> tuple[dict[str, bytes], str]:
    """The files of a cut by name, and the command line that shows the failure."""
    options = made.options
    onnx.checker.check_model(made.model)
    files = {
        MODEL: made.model.SerializeToString(deterministic=True),
        DATA: npz_bytes(_samples(made.data)),
        EXPECTED: npz_bytes(made.expected),
    }
    words = ["torq", "check", MODEL, "--data", DATA]
    if made.float_model is not None:
        files[FLOAT] = made.float_model.SerializeToString(deterministic=True)
        words += ["--float-model", FLOAT]
    if options.precision != "auto":
        words += ["--precision", options.precision]
    if made.calibration is not None:
        files["calib.npz"] = npz_bytes(made.calibration)
        words += ["--calib", "calib.npz"]
    if options.plan is not None:
        files["plan.json"] = options.plan.dumps().encode()
        words += ["--precision-plan", "plan.json"]
    if options.config.name in preset_names():
        words += ["--hw", options.config.name]
    else:
        files["hw.yaml"] = to_yaml(options.config).encode()
        words += ["--hw", "hw.yaml"]
    if options.decisions is not None:
        files["schedule.json"] = options.decisions.dumps().encode()
        words += ["--schedule", "schedule.json"]
    for name in options.disabled_passes:
        words += ["--disable-pass", name]
    if options.effort != 1:
        words += ["--effort", str(options.effort)]
    if made.calibration is not None:
        for name in options.disabled_rewrites:
            words += ["--disable-rewrite", name]
        words += ["--calibration-method", options.calibration_method]
    if made.wanted.stage is Stage.QUANTIZATION:
        files["cut.yaml"] = f"layers: {{min_local_sqnr: {MIN_LOCAL_SQNR}}}\n".encode()
        words += ["--thresholds", "cut.yaml"]
    return files, shlex.join(words)


def _samples(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One sample as arrays whose first axis counts samples."""
    return {name: np.atleast_1d(value) for name, value in data.items()}
