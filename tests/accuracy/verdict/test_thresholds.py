"""Limits from a file: what may stand in it, and what it means."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest

from torq_byoc.accuracy.lint import RULES
from torq_byoc.accuracy.verdict.thresholds import Thresholds, load_thresholds, thresholds_of
from torq_byoc.errors import AccuracyError

DOCUMENT = Path(__file__).parents[3] / "docs" / "accuracy.md"


def _loaded(folder: Path, text: str) -> Thresholds:
    path = folder / "limits.yaml"
    path.write_text(text)
    return load_thresholds(path)


def test_the_document_shows_the_defaults(tmp_path):
    defaults, example = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert _loaded(tmp_path, defaults) == Thresholds()
    assert _loaded(tmp_path, example).outputs.of("detections", "scores").min_cosine == 0.999


def test_the_document_names_every_key():
    (defaults, _) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for section, limits in msgspec.structs.asdict(Thresholds()).items():
        assert f"{section}:" in defaults
        for key in limits.__struct_fields__ if isinstance(limits, msgspec.Struct) else ():
            assert f"  {key}:" in defaults, key


def test_the_document_names_every_rule_of_the_lint():
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert {name for line in rows for name in re.findall("`([a-z-]+)`", line.split("|")[1])} == set(RULES)


def test_an_empty_file_is_the_defaults(tmp_path):
    assert _loaded(tmp_path, "") == Thresholds()


def test_numbers_with_an_exponent(tmp_path):
    """YAML takes 1e-3 for a word."""
    thresholds = _loaded(tmp_path, "outputs: {max_error: 1e-3, names: {y: {max_error: 2e-3}}}")
    assert (thresholds.outputs.max_error, thresholds.outputs.of("y", "y").max_error) == (1e-3, 2e-3)


def test_own_limits_before_the_output_s_before_everybody_s(tmp_path):
    outputs = _loaded(
        tmp_path,
        """
        outputs:
          min_sqnr: 10
          max_error: 1
          names: {y: {min_sqnr: 20, min_cosine: null}, y/box: {min_sqnr: 30}}
        """,
    ).outputs
    box, score, other = outputs.of("y", "box"), outputs.of("y", "score"), outputs.of("z", "z")
    assert (box.min_sqnr, box.min_cosine, box.max_error) == (30, None, 1)
    assert (score.min_sqnr, score.min_cosine) == (20, None)
    assert (other.min_sqnr, other.min_cosine) == (10, 0.99)


def test_limits_of_a_tensor_before_those_of_its_node(tmp_path):
    text = "layers: {min_cosine: 0.5, names: {conv: {min_cosine: 0.6, max_saturated: 0.1}, t: {min_cosine: 0.7}}}"
    layers = _loaded(tmp_path, text).layers
    assert (layers.of("conv", "t").min_cosine, layers.of("conv", "t").max_saturated) == (0.7, 0.1)
    assert layers.of("other", "u").min_cosine == 0.5


REFUSED = {
    "unknown section": ("output: {min_sqnr: 3}", "output"),
    "unknown key": ("outputs: {min_snr: 3}", "min_snr"),
    "unknown key of one output": ("outputs: {names: {y: {min_snr: 3}}}", "min_snr"),
    "unknown key of one layer": ("layers: {names: {y: {max_error: 3}}}", "max_error"),
    "no number": ("outputs: {min_sqnr: high}", "float"),
    "a cosine of two": ("outputs: {min_cosine: 2}", "<= 1"),
    "a cosine of two for one output": ("outputs: {names: {y: {min_cosine: 2}}}", "<= 1"),
    "a share below zero": ("labels: {max_top1_loss: -0.1}", ">= 0"),
    "a list": ("[1, 2]", "object"),
    "the same key twice": ("outputs: {min_sqnr: 3, min_sqnr: 4}", "repeated"),
    "an alias": ("outputs: &a {min_sqnr: 3}\nlayers: *a", "alias"),
    "no YAML": ("outputs: {", "expected"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case, tmp_path):
    text, word = REFUSED[case]
    with pytest.raises(AccuracyError) as error:
        _loaded(tmp_path, text)
    assert word in error.value.why and str(tmp_path) in error.value.where


def test_a_missing_file(tmp_path):
    with pytest.raises(AccuracyError):
        load_thresholds(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("limits", "where", "near"),
    [
        ({"outputs": {"names": {"y/boxs": {"min_cosine": 0.5}}}}, "outputs.names", "y/box"),
        ({"layers": {"names": {"cnov": {"min_cosine": 0.5}}}}, "layers.names", "conv"),
        ({"lint": {"accept": ["bias-overflw"]}}, "lint.accept", "bias-overflow"),
    ],
)
def test_names_that_there_are_not(limits, where, near):
    with pytest.raises(AccuracyError) as error:
        thresholds_of(limits).check_names(["y", "y/box"], ["conv", "t"], ["bias-overflow", "non-finite"])
    assert error.value.where == where and f"'{near}'" in error.value.remedy


@pytest.mark.slow
def test_a_file_of_many_keys_is_read_in_the_time_that_one_of_its_size_takes(tmp_path):
    """Each key held against all before it would take minutes."""
    text = "\n".join(f"k{number}: 1" for number in range(40_000))
    started = time.process_time()
    with pytest.raises(AccuracyError, match="unknown field"):
        _loaded(tmp_path, text)
    assert time.process_time() - started < 30
