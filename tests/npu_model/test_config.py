"""Hardware descriptions: presets, YAML round trips, and refusal of impossible machines."""

from __future__ import annotations

import dataclasses
import os

import pytest

from torq_byoc.errors import HardwareConfigError
from torq_byoc.npu_model.config import NdlLimits, NpuConfig
from torq_byoc.npu_model.config_data import check_machine
from torq_byoc.npu_model.presets import (
    MAX_YAML_BYTES,
    config_from_yaml,
    content_hash,
    load_config,
    preset,
    preset_names,
    to_yaml,
)


def test_presets_are_named_and_differ_as_their_names_say():
    wanted = {"sl2610", "sl2610-1slice", "4slice"} | {f"lram{k}" for k in (64, 128, 192, 256, 384, 1024)}
    assert wanted <= set(preset_names())
    assert load_config("sl2610") == NpuConfig()
    assert load_config("sl2610-1slice").slices == 1
    assert load_config("4slice").slices == 4
    for kib in (64, 128, 192, 256, 384, 1024):
        assert load_config(f"lram{kib}") == NpuConfig(name=f"lram{kib}", lram_bytes=kib * 1024)


def test_derived_numbers_of_the_sl2610():
    config = load_config("sl2610")
    assert config.lram_usable == 523_008
    assert config.dma_bytes_per_cycle == pytest.approx(4.7543, abs=5e-5)


@pytest.mark.parametrize("name", preset_names())
def test_yaml_round_trip(name, tmp_path):
    config = preset(name)
    path = tmp_path / "hw.yaml"
    path.write_text(to_yaml(config))
    assert load_config(path) == load_config(str(path)) == config


def test_fields_left_out_keep_their_value():
    config = config_from_yaml("name: mine\nslices: 3\nlimits: {max_taps_per_load: 4, conv_strides: [1, 2, 4]}\n")
    assert config == NpuConfig(name="mine", slices=3, limits=NdlLimits(max_taps_per_load=4, conv_strides=(1, 2, 4)))


@pytest.mark.parametrize(
    ("name", "meant"), [("sl2611", "sl2610"), ("SL2610", "sl2610"), ("lram63", "lram64"), ("", "")]
)
def test_an_unknown_preset_names_the_nearest(name, meant):
    with pytest.raises(HardwareConfigError, match="there is no hardware preset") as caught:
        load_config(name)
    assert ("did you mean" in caught.value.remedy) == bool(meant)
    assert f"did you mean {meant!r}" in caught.value.remedy or not meant
    assert all(known in caught.value.remedy for known in preset_names())


@pytest.mark.parametrize(
    "text, words",
    [
        ("lram_byte: 5", "'lram_bytes'"),
        ("limits: {max_dim: 5}", "'max_dims'"),
        ("5: 6", "no field 5"),
        ("slices: two", "slices"),
        ("slices: 2.5", "slices"),
        ("slices: true", "slices"),
        ("dma_peak: fast", "dma_peak"),
        ("dma_peak: .nan", "dma_peak"),
        ("dma_peak: .inf", "dma_peak"),
        ("limits: 7", "limits"),
        ("limits: {conv_strides: 2}", "conv_strides"),
        ("slices: 0", "at least 1"),
        ("slices: -3", "at least 1"),
        ("slices: 99999999999999999999999999", "slices"),
        ("lram_bytes: 4096", "lram_reserve"),
        ("lram_bytes: 524289", "multiple of lram_word"),
        ("lram_bytes: 33554432", "address_bits"),
        ("lram_reserve: 1000", "two sequencer slots"),
        ("xram_base: 4294967295", "xram_bytes"),
        ("dma_factor: 0", "dma_factor"),
        ("dma_factor: 1.5", "dma_factor"),
        ("dma_mtu: 9", "dma_mtu"),
        ("data_vector: 48", "power of two"),
        ("accumulators: 100", "alu_groups x data_vector"),
        ("table_entries: 1024", "table_entries"),
        ("limits: {max_dims: 40}", "4..16"),
        ("limits: {conv_strides: []}", "conv_strides"),
        ("- a\n- b", "list"),
        ("", "NoneType"),
        ("a: [", "cannot be read"),
        ("slices: 1\nslices: 2", "repeated"),
        ("a: &x 1\nb: *x", "aliases"),
        ("? [[1]]\n: 2\n? [[1]]\n: 3", "unhashable"),
        ('name: "\\ud800"', "surrogate"),
        ("a: !!python/object/apply:os.system ['true']", "cannot be read"),
        ("\x00", "cannot be read"),
        ("[" * 5000, "cannot be read"),
        ("? [a, b]\n: 1", "cannot be read"),
        ("#" * (MAX_YAML_BYTES + 1), "at most"),
    ],
)
def test_bad_descriptions_are_refused_with_the_reason(text, words):
    with pytest.raises(HardwareConfigError) as caught:
        config_from_yaml(text, "hw.yaml")
    assert words in str(caught.value)
    assert caught.value.where.startswith("hw.yaml")


def test_an_alias_bomb_is_refused_at_once():
    lines = ["a0: &a0 [x, x]"] + [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 9)]
    with pytest.raises(HardwareConfigError, match="aliases"):
        config_from_yaml("\n".join(lines))


def test_unreadable_files_are_refused(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_YAML_BYTES + 1))
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (binary, large, pipe, tmp_path / "none.yml", tmp_path):
        with pytest.raises(HardwareConfigError, match="cannot be read"):
            load_config(path)


def test_content_hash_ignores_the_name_alone():
    base = NpuConfig()
    assert content_hash(base) == content_hash(dataclasses.replace(base, name="other"))
    assert content_hash(base) != content_hash(dataclasses.replace(base, dma_mtu=3))
    assert content_hash(base) != content_hash(dataclasses.replace(base, limits=NdlLimits(max_shift=31)))


def test_the_refusal_carries_number_and_limit():
    with pytest.raises(HardwareConfigError) as caught:
        check_machine(NpuConfig(slices=17))
    assert caught.value.details == {"field": "slices", "value": 17, "required": "at most 16"}
