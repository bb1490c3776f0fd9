"""The page: well-formed, self-contained, every name escaped, and its figures those of --json."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import msgspec
import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, cpu_model, mixed_model, samples
from torq_byoc.compiled_model import CompiledModel, CpuOp
from torq_byoc.report.measure import measure
from torq_byoc.report.page import timeline
from torq_byoc.report.page.render import html_report
from torq_byoc.report.page.tenancies import tenancies
from torq_byoc.report.summary import summarize

SVG = "{http://www.w3.org/2000/svg}"
HTML = "{http://www.w3.org/1999/xhtml}"
VOID = {"meta", "input"}


def _int8(**options) -> CompiledModel:
    return torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}, **options)


@pytest.fixture(scope="module")
def model():
    return _int8()


@pytest.fixture(scope="module")
def page(model):
    return ET.fromstring(html_report(measure(model)))


def _find(page: ET.Element, identity: str) -> ET.Element:
    (found,) = [element for element in page.iter() if element.get("id") == identity]
    return found


def _text(element: ET.Element) -> str:
    return "".join(element.itertext()).strip()


def _rows(table: ET.Element) -> list[list[str]]:
    rows = [[_text(cell) for cell in row.iter(f"{HTML}td")] for row in table.iter(f"{HTML}tr")]
    return [row for row in rows if row]


def _pictures(page: ET.Element) -> list[ET.Element]:
    return [element for element in page.iter(f"{SVG}svg") if element.get("class") == "plot"]


def _part(picture: ET.Element, style: str) -> list[ET.Element]:
    return [element for element in picture.iter() if style in (element.get("class") or "").split()]


class _Balance(HTMLParser):
    """Reads the page as a browser does, and notes tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        """Written closed, which in HTML holds for void elements and inside svg alone."""
        if tag not in VOID and "svg" not in self.open and tag != "svg":
            self.wrong.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_html_as_well(model):
    reader = _Balance()
    reader.feed(html_report(measure(model), measure(_int8(disable_passes=["prefetch"]))))
    assert not reader.open and not reader.wrong


def test_key_figures_are_those_of_the_summary(page, model):
    summary = summarize(model)
    shown = {key: _text(_find(page, f"figure-{key}")) for key in ("cycles", "latency", "lower-bound", "macs", "xram")}
    assert shown == {
        "cycles": f"{summary['cycles']['total']:,}",
        "latency": f"{summary['latency_us']:.2f} us",
        "lower-bound": f"{summary['lower_bound_cycles']['total']:,}",
        "macs": f"{summary['macs']:,}",
        "xram": f"{summary['xram_bytes']:,} B",
    }
    assert _text(_find(page, "figure-in-bytes")) == f"{summary['dma']['in_bytes']:,} B"
    assert _text(_find(page, "figure-out-bytes")) == f"{summary['dma']['out_bytes']:,} B"
    assert _text(_find(page, "figure-efficiency")) == f"{summary['efficiency']:.3f}"
    assert _text(_find(page, "figure-lram")) == f"{summary['lram']['peak']:,} of 524,288 B"
    assert summary["profile"] in _text(page.find(f"{HTML}body/{HTML}p"))


def test_the_layer_table_is_that_of_the_summary(page, model):
    rows = _rows(_find(page, "layer-table"))
    layers = summarize(model)["layers"]
    assert len(rows) == len(layers) > 3
    for number, (row, layer) in enumerate(zip(rows, layers, strict=True), start=1):
        moved = {way: sum(v for k, v in layer["bytes"].items() if k.startswith(way)) for way in ("in_", "out_")}
        assert row[:3] == [str(number), layer["node"], layer["op"]]
        assert row[4:6] == [f"{layer['tiles']:,}", f"{layer['cycles']:,}"]
        assert row[7:9] == [layer["bound_by"], f"{100 * layer['utilisation']:.1f} %"]
        assert row[9:12] == [f"{layer['macs']:,}", f"{moved['in_']:,}", f"{moved['out_']:,}"]
        assert row[12:14] == [str(layer["transfers"][way]) for way in ("in", "out")]
        assert row[15:] == [f"{layer['start']:,}", f"{layer['end']:,}"]


def test_the_pass_table_is_the_ledger(page, model):
    passes = summarize(model)["passes"]
    rows = _rows(_find(page, "pass-table"))
    assert [row[0] for row in rows] == [entry["name"] for entry in passes]
    fields = sorted({key for entry in passes for key in entry["saved"]})
    for row, entry in zip(rows, passes, strict=True):
        assert row[1:-1] == [f"{entry['saved'][key]:,}" if key in entry["saved"] else "–" for key in fields]
        assert row[-1] == f"{entry['seconds']:.3f}"


def test_bars_are_the_busy_cycles_of_each_engine(page, model):
    measurement = measure(model)
    (picture,) = _pictures(page)
    rows = _part(picture, "row")
    assert len(rows) == 4
    ends = []
    for row, track in zip(rows, ("dma_in", "slice0", "slice1", "dma_out"), strict=True):
        bars = _part(row, "bar")
        assert row.get("viewBox") == f"0 0 {measurement.total_cycles} 1"
        assert sum(int(bar.get("width")) for bar in bars) == measurement.busy(track)
        ends += [int(bar.get("x")) + int(bar.get("width")) for bar in bars]
        titles = [bar.find(f"{SVG}title").text for bar in bars]
        assert all(re.search(r"(conv|pool|mean|dense|flatten|sequencer).*\n", title) for title in titles)
    assert max(ends) == measurement.total_cycles


def test_the_lram_map_is_the_tenancies(page, model):
    measurement = measure(model)
    (picture,) = _pictures(page)
    (lram,) = _part(picture, "lram")
    assert lram.get("viewBox") == f"0 0 {measurement.total_cycles} {measurement.config.lram_bytes}"
    drawn = {
        (int(r.get("x")), int(r.get("y")), int(r.get("width")), int(r.get("height")), r.get("class").split()[1])
        for r in _part(lram, "buffer")
    }
    assert drawn == {(t.start, t.address, t.end - t.start, t.nbytes, t.kind) for t in tenancies(measurement)}
    title = _part(lram, "buffer")[0].find(f"{SVG}title").text
    assert " B at " in title


def test_every_layer_with_macs_has_its_point(page, model):
    points = _part(_find(page, "roofline-picture"), "point")
    layers = [layer for layer in summarize(model)["layers"] if layer["macs"]]
    assert [point.get("class").split()[1] for point in points] == [layer["bound_by"] for layer in layers]
    for point, layer in zip(points, layers, strict=True):
        assert f"{layer['macs']:,} MACs in {layer['cycles']:,} cycles" in point.find(f"{SVG}title").text


def test_decisions_name_every_node(page, model):
    text = _text(_find(page, "decisions"))
    assert all(layer.node in text for layer in model.partitions[0].facts.layers)
    assert model.partitions[0].facts.decisions.strip() in text


def test_nothing_comes_from_elsewhere(page, model):
    text = html_report(measure(model))
    links = {"src", "href", "action", "data", "{http://www.w3.org/1999/xlink}href"}
    assert not any(links & set(element.keys()) for element in page.iter())
    assert "url(" not in text and "@import" not in text
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}


def test_the_browser_is_told_to_run_our_script_alone(page):
    (script,) = page.iter(f"{HTML}script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = [e.get("content") for e in page.iter(f"{HTML}meta") if e.get("http-equiv")]
    assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{digest}'" in policy


HOSTILE = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\x00\x1b\ud800{{ 7 * 7 }}"


def test_names_are_text_whatever_they_hold(model):
    part = model.partitions[0]
    layers = tuple(msgspec.structs.replace(layer, origin=HOSTILE) for layer in part.facts.layers)
    record = f'{{"nodes": {{"x": {{"tile": "{HOSTILE[:40]}"}}}}}}'
    facts = msgspec.structs.replace(part.facts, symbol=HOSTILE, layers=layers, decisions=record)
    hostile = dataclasses.replace(
        model,
        facts=msgspec.structs.replace(
            model.facts,
            model=HOSTILE,
            cpu_ops=(CpuOp(HOSTILE, HOSTILE, HOSTILE),),
            notes=(HOSTILE,),
            warnings=(HOSTILE,),
        ),
        partitions=(dataclasses.replace(part, facts=facts),),
    )
    text = html_report(measure(hostile), measure(hostile))
    text.encode()
    page = ET.fromstring(text)
    assert len(list(page.iter(f"{HTML}script"))) == 1 and not list(page.iter(f"{HTML}img"))
    expected = HOSTILE.translate({0: "\ufffd", 0x1B: "\ufffd", 0xD800: "\ufffd"})
    assert {row[1] for row in _rows(_find(page, "layer-table"))} == {expected}
    assert _text(page.find(f"{HTML}body/{HTML}h1")) == expected


def test_two_compiles_share_a_scale_and_differ_in_the_tables(model):
    slow = _int8(disable_passes=["loop-invariant", "prefetch"], hw="sl2610-1slice")
    before, after = summarize(slow), summarize(model)
    page = ET.fromstring(html_report(measure(model), measure(slow)))
    pictures = _pictures(page)
    span = max(before["cycles"]["total"], after["cycles"]["total"])
    assert [len(_part(picture, "row")) for picture in pictures] == [3, 4]
    assert {row.get("viewBox") for picture in pictures for row in _part(picture, "row")} == {f"0 0 {span} 1"}
    total = {row[0]: row[1:] for row in _rows(_find(page, "comparison-total"))}
    old, new = before["cycles"]["total"], after["cycles"]["total"]
    assert total["cycles"] == [f"{old:,}", f"{new:,}", f"{new - old:+,}", f"{new / old:.3f}"]
    old, new = before["dma"]["in_bytes"], after["dma"]["in_bytes"]
    assert total["DMA in, B"] == [f"{old:,}", f"{new:,}", f"{new - old:+,}" if new != old else "0", f"{new / old:.3f}"]
    rows = _rows(_find(page, "comparison-layers"))
    assert [row[0] for row in rows] == [*(layer["node"] for layer in after["layers"]), "sequencer program"]
    for row, old_layer, new_layer in zip(rows, before["layers"], after["layers"], strict=False):
        assert row[1:3] == [f"{layer['cycles']:,}" for layer in (old_layer, new_layer)]
        assert int(row[3].replace(",", "")) == new_layer["cycles"] - old_layer["cycles"]


def test_large_models_are_drawn_coarsely_and_say_so(model, monkeypatch):
    monkeypatch.setattr(timeline, "MAX_BARS", 8)
    monkeypatch.setattr(timeline, "MAX_RECTANGLES", 6)
    text = html_report(measure(model))
    (picture,) = _pictures(ET.fromstring(text))
    assert len(_part(picture, "bar")) <= 8 and len(_part(picture, "buffer")) == 6
    assert "Many jobs: those of one layer" in text and "are left out" in text
    titles = [bar.find(f"{SVG}title").text for bar in _part(picture, "bar")]
    assert any(re.search(r"\d+ jobs, ", title) for title in titles)


def test_the_largest_pictures_of_two_compiles_take_less_than_five_megabytes(model):
    part = model.partitions[0]
    layers = tuple(msgspec.structs.replace(layer, origin=f"{'&' * 300}") for layer in part.facts.layers)
    named = dataclasses.replace(
        model, partitions=(dataclasses.replace(part, facts=msgspec.structs.replace(part.facts, layers=layers)),)
    )
    shapes = re.findall(r"<rect [^>]*class=\"(?:bar|buffer) [^>]*>.*?</rect>\n", html_report(measure(named)), re.DOTALL)
    worst = max(len(shape.encode()) for shape in shapes) + 40
    plain = html_report(measure(model))
    usual = (
        max(len(s.encode()) for s in re.findall(r"<rect [^>]*class=\"bar [^>]*>.*?</rect>\n", plain, re.DOTALL)) + 40
    )
    count = 2 * (timeline.MAX_BARS + timeline.MAX_RECTANGLES)
    assert count * (usual + 56) < 5e6 and worst < 600


@pytest.mark.parametrize("build", [mixed_model, cpu_model])
def test_models_with_a_part_on_the_cpu(build):
    model = torq_byoc.compile(build())
    page = ET.fromstring(html_report(measure(model), measure(model)))
    cpu = _find(page, "cpu")
    assert [row[0] for row in _rows(cpu)] == [op.node for op in model.facts.cpu_ops] != []
    assert len(_pictures(page)) == (2 if model.partitions else 0)


def test_a_loaded_model_has_the_same_page_but_for_the_seconds(model, tmp_path):
    model.save(tmp_path / "m.torq")
    loaded = html_report(measure(torq_byoc.load(tmp_path / "m.torq")))
    fresh = html_report(measure(dataclasses.replace(model, timings={}, pass_seconds={})))
    assert loaded == fresh == html_report(measure(torq_byoc.load(tmp_path / "m.torq")))
    assert _text(_find(ET.fromstring(loaded), "figure-compile")) == "– s"
