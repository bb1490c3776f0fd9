"""Rewrites that a plan holds: applied as they were found, at some of their places, or refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks.accuracy import sets
from tests.quantize.models import parsed
from torq_byoc.errors import QuantizationError
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.automatic import quantize
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.precision_plan import PlannedRewrite, PrecisionPlan
from torq_byoc.quantize.quantization import quantization_of
from torq_byoc.quantize.rewrites.replay import replayed


def prepared(builder) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:  # noqa: ANN001
    stress = builder(0)
    return prepare(stress.model), stress.data(16, 1)


@pytest.mark.parametrize("builder", [sets.detector_head, sets.dead_channels, sets.outlier_block, sets.heavy_tail])
def test_what_a_search_found_comes_again_from_its_name_and_places(builder) -> None:  # noqa: ANN001
    model, data = prepared(builder)
    found = quantize(model, data, method="minmax")
    entries = [PlannedRewrite(each.name, each.places, each.strength) for each in found.rewrites]
    candidate = replayed(model, tuple(samples(model, data)), entries)
    assert entries and candidate.model.SerializeToString() == found.exact.SerializeToString()
    choices = {"floats": candidate.floats, "methods": candidate.methods}
    again = quantization_of(candidate.model, data, method="minmax", **choices)
    assert again.model.SerializeToString() == found.model.SerializeToString()


def test_a_plan_rewrites_before_it_quantizes() -> None:
    model, data = prepared(sets.detector_head)
    plan = PrecisionPlan(rewrites=(PlannedRewrite("concat_in_float", ("Concat_t11",)),))
    nodes = {node.name: node for node in quantize_model(model, data, plan=plan).graph.node}
    makers = {name: node for node in nodes.values() for name in node.output}
    read = nodes["Concat_t11"].input
    assert [makers[name].op_type for name in read] == ["DequantizeLinear"] * 2
    assert len({makers[name].input[1] for name in read}) == 2, "a scale of its own for each operand"
    assert makers["y"].op_type == "Reshape" and makers[makers["y"].input[0]].name == "Concat_t11"


def two_pairs() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two chains of layers with unlike channels in between, which can be equalized one without the other."""
    rng = np.random.default_rng(0)
    sizes = np.exp2(-np.arange(8.0) * 2).reshape(8, 1, 1, 1)
    constants = {"v": rng.standard_normal((2, 8, 1, 1)), "q": rng.standard_normal((2, 8, 1, 1))}
    constants |= {name: np.abs(rng.standard_normal((8, 2, 1, 1))) * sizes for name in ("w", "p")}
    body = "a = Conv(x, w) y = Conv(a, v) b = Conv(x, p) z = Conv(b, q)"
    return parsed(body, "float[1,2,12,12] x", "y, z", constants), {
        "x": rng.uniform(0.5, 1.0, (4, 2, 12, 12)).astype(np.float32)
    }


def test_only_the_places_of_the_plan_change() -> None:
    model, data = two_pairs()
    first = model.graph.node[0].name
    feeds = tuple(samples(model, data))
    candidate = replayed(model, feeds, [PlannedRewrite("equalize_channels", (first,), 1.0)])
    before, after = (Evaluator(each).tensors(feeds[0]) for each in (model, candidate.model))
    assert not np.allclose(before["a"], after["a"], rtol=0.1) and np.array_equal(before["b"], after["b"])
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("entry", "what", "remedy"),
    [
        (PlannedRewrite("equalise_channels", ("a",)), "there is no rewrite", "equalize_channels"),
        (PlannedRewrite("equalize_channels", ("nowhere",)), "no operator 'nowhere'", "use one of"),
        (PlannedRewrite("scale_outputs", ("{0}",)), "has no reason", "take the place out"),
        (PlannedRewrite("equalize_channels", ("{0}",), 0.6), "no strength 0.6", "use one of 0.5, 0.75, 1"),
    ],
)
def test_what_cannot_be_applied_is_refused(entry: PlannedRewrite, what: str, remedy: str) -> None:
    model, data = two_pairs()
    places = tuple(place.format(model.graph.node[0].name) for place in entry.places)
    asked = PlannedRewrite(entry.name, places, entry.strength)
    with pytest.raises(QuantizationError, match=what) as refusal:
        replayed(model, tuple(samples(model, data)), [asked])
    assert remedy in refusal.value.remedy and refusal.value.where
