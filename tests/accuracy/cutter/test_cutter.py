"""Cuts: few operators, real operands, the model's own scales, and the same failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from benchmarks.accuracy.fault_subjects import Subject, subjects
from tests.accuracy.models import data, detector
from tests.end_to_end.harness import Arrays
from torq_byoc.accuracy.causes.attribution import layer_deviations
from torq_byoc.accuracy.cutter.cutter import cut
from torq_byoc.accuracy.cutter.files import bisect
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.layer_check import LayerCheck
from torq_byoc.accuracy.programs.program_check import program_deviations
from torq_byoc.accuracy.stages import stages_of
from torq_byoc.cli.main import main
from torq_byoc.compilation.options import Options
from torq_byoc.errors import AccuracyError
from torq_byoc.kernels.conv2d import Conv2d
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.quantize.evaluation.float64 import float64_outputs
from torq_byoc.quantize.precision_plan import PrecisionPlan, TensorPrecision

QUANTIZATIONS = ("QuantizeLinear", "DequantizeLinear")


def _operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type not in QUANTIZATIONS]


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Subject:
    """A network compiled by a compiler whose convolutions shift by one bit too few in the layer conv3."""
    right = Conv2d.tasks

    def wrong(self: Conv2d, graph: Any, node: Any, *arguments: Any) -> list[SliceTask]:
        tasks = right(self, graph, node, *arguments)
        if "conv3" not in node.name:
            return tasks
        return [replace(task, act=replace(task.act, shift=task.act.shift - 1)) if task.alu else task for task in tasks]

    monkeypatch.setattr(Conv2d, "tasks", wrong)
    return next(iter(subjects("residual int8")))


def test_a_defect_of_ours_is_cut_down_to_its_layer_and_fails_alike(faulty: Subject, tmp_path: Path) -> None:
    sample = faulty.samples[0]
    found = program_deviations(faulty.stages, sample)
    made = bisect(faulty.stages, found, sample, tmp_path / "cut")
    assert made is not None
    assert made.found is not None
    assert (made.found.stage, made.found.node) == (Stage.CODE_GENERATION, "relu3")
    assert _operators(made.model) == ["Conv", "Relu"]
    assert (tmp_path / "cut" / "command.txt").read_text() == "torq check cut.onnx --data cut.npz --hw sl2610\n"


def test_a_cut_keeps_scales_and_operands(faulty: Subject) -> None:
    sample = faulty.samples[0]
    wanted = Deviation(Stage.CODE_GENERATION, "relu3", "conv3+relu3", True, "", "")
    made = cut(faulty.stages, wanted, sample)
    whole = _tensors(faulty.stages.precise, sample)
    (name,) = made.data
    assert np.array_equal(made.data[name], whole[f"{name}_for_conv3_0"].astype(np.float32))
    alone = float64_outputs(made.model, made.data)
    (output,) = made.expected
    assert np.array_equal(alone[output], whole[output])
    kept = {tensor.name: tensor for tensor in made.model.graph.initializer}
    own = {tensor.name: tensor for tensor in faulty.stages.precise.graph.initializer}
    assert all(tensor == own[tensor_name] for tensor_name, tensor in kept.items())


def _tensors(model: onnx.ModelProto, sample: Arrays) -> Arrays:
    from torq_byoc.quantize.evaluation.float64 import Float64Evaluator

    return Float64Evaluator(model).tensors(sample)


def test_the_command_shows_the_failure(
    faulty: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = faulty.samples[0]
    bisect(faulty.stages, program_deviations(faulty.stages, sample), sample, tmp_path)
    monkeypatch.chdir(tmp_path)
    command = (tmp_path / "command.txt").read_text().split()
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "code generation" in capsys.readouterr().out


def test_a_layer_that_harms_by_its_ranges_is_cut_from_the_float_model(tmp_path: Path) -> None:
    subject = _unlike_operands()
    wanted = Deviation(Stage.QUANTIZATION, "join", "join_out", True, "unlike operand ranges", "")
    made = cut(subject.stages, wanted, subject.samples[0])
    assert made.found is not None
    assert made.found.stage is Stage.QUANTIZATION
    assert len(_operators(made.model)) <= 3
    assert not any(node.op_type in QUANTIZATIONS for node in made.model.graph.node)
    assert made.calibration is not None
    assert set(made.calibration) == set(made.data)


def _unlike_operands() -> Subject:
    from benchmarks.accuracy.fault_subjects import _Network
    from torq_byoc.accuracy.stages import stages_of
    from torq_byoc.compilation.options import Options

    net = _Network()
    x = net.node("Relu", "relu0", net.conv("conv0", "x", (3, 8)))
    big = net.node("Mul", "big", net.node("Relu", "relu1", x), net.constant("c", np.array(640.0)))
    small = net.node("Sigmoid", "small", net.conv("class", x, (8, 4), kernel=1))
    net.node("Relu", "last", net.node("Concat", "join", big, small, axis=1))
    data = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    options = Options(precision="int8", calibration={"x": data})
    return Subject("unlike", stages_of(net.model((1, 3, 8, 8)), options, name="unlike"), {"x": data})


def test_a_cut_of_a_mixed_model_keeps_its_part_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = TensorPrecision(dtype="int16")
    plan = PrecisionPlan(tensors={"x": wide, "cls": wide}, nodes={"stem": "bf16", "relu": "bf16"})
    options = Options(precision="mixed", plan=plan, calibration=data(8, seed=1), effort=0)
    stages = stages_of(detector(), options, name="detector")
    check = LayerCheck(stages)
    (sample,) = ({"x": one[None]} for one in data(1, seed=9)["x"])
    check.take(sample)
    made = bisect(stages, layer_deviations(check.rows()), sample, tmp_path / "cut")
    assert made is not None and made.found is not None
    assert "Concat" in _operators(made.model) and made.options.precision == "mixed"
    assert made.options.plan == PrecisionPlan(tensors={"cls": wide})
    command = (tmp_path / "cut" / "command.txt").read_text()
    assert "--precision mixed" in command and "--precision-plan plan.json" in command
    monkeypatch.chdir(tmp_path / "cut")
    with pytest.raises(SystemExit) as done:
        main(command.split()[1:])
    assert done.value.code == 1, capsys.readouterr().err


def test_a_defect_beside_operators_in_bf16_is_cut_for_both() -> None:
    """A layer that reads codes and stays float, between layers that do not."""
    subject = next(iter(subjects("residual int8")))
    calibration = subject.stages.options.calibration
    plan = PrecisionPlan(nodes={"conv3": "bf16", "relu3": "bf16"})
    options = Options(precision="mixed", plan=plan, calibration=calibration, effort=0)
    stages = stages_of(subject.stages.original, options, name="m")
    wanted = Deviation(Stage.CODE_GENERATION, "relu3", "relu3_out", True, "", "")
    made = cut(stages, wanted, subject.samples[0])
    assert made.options.precision == "mixed" and made.options.plan is None
    assert _operators(made.model) == ["Conv", "Relu"]


def test_what_preparing_changes_is_cut_from_the_model_as_given(faulty: Subject) -> None:
    wanted = Deviation(Stage.IMPORT, "conv3", "conv3_out", True, "", "")
    made = cut(faulty.stages, wanted, faulty.samples[0])
    assert made.nodes == ("conv3",)
    assert made.found is None, "our preparation of a convolution is right"
    (output,) = made.expected
    weights = {tensor.name: tensor for tensor in made.model.graph.initializer}
    assert output == "conv3_out"
    assert set(weights) == {"conv3.w", "conv3.b"}
    assert weights["conv3.w"] == next(t for t in faulty.stages.original.graph.initializer if t.name == "conv3.w")


def test_a_layer_that_is_not_there_is_refused(faulty: Subject) -> None:
    wanted = Deviation(Stage.TILING, "nowhere", "", True, "", "")
    with pytest.raises(AccuracyError, match="no such layer"):
        cut(faulty.stages, wanted, faulty.samples[0])


def test_nothing_wrong_by_itself_is_nothing_to_cut(faulty: Subject, tmp_path: Path) -> None:
    inherited = Deviation(Stage.TILING, "relu3", "", False, "", "")
    assert bisect(faulty.stages, [inherited], faulty.samples[0], tmp_path / "none") is None
    assert not (tmp_path / "none").exists()
