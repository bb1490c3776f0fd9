"""Convolutions with strides and a single tap load what they read of a tensor, and nothing else of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.infra import addition, check_program, convolution
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType

CONFIG = NpuConfig()


@pytest.mark.parametrize(("height", "width"), [(20, 22), (19, 21), (2, 3), (20, 1)])
@pytest.mark.parametrize("kib", [16, 512])
def test_a_quarter_of_the_tensor_is_loaded(height: int, width: int, kib: int) -> None:
    rng = np.random.default_rng(height)
    builder = GraphBuilder("shortcut")
    x = builder.input("x", (1, 16, height, width), DType.INT8)
    builder.output(convolution(builder, rng, x, 12, 1, 2, 0, "shortcut"))
    generated = check_program(builder.finish(), replace(CONFIG, lram_bytes=kib << 10))
    loaded = sum(layer.get("in_activation", 0) for layer in generated.layer_bytes.values())
    assert loaded == 16 * -(-height // 2) * -(-width // 2)


@pytest.mark.parametrize("kib", [16, 24, 64, 512])
@pytest.mark.parametrize("size", [14, 17])
def test_beside_a_reader_of_all_phases(size: int, kib: int) -> None:
    """The two branches of a residual block that halves its planes: one reads all of its input, the other a quarter."""
    rng = np.random.default_rng(size)
    builder = GraphBuilder("halved")
    x = builder.input("x", (1, 16, size, size), DType.INT8)
    before = convolution(builder, rng, x, 16, 3, 1, 1, "before")
    branch = convolution(builder, rng, before, 32, 3, 2, 1, "branch")
    builder.output(addition(builder, branch, convolution(builder, rng, before, 32, 1, 2, 0, "shortcut"), "sum"))
    check_program(builder.finish(), replace(CONFIG, lram_bytes=kib << 10))


@pytest.mark.parametrize("kib", [12, 16, 64])
def test_in_bands_as_well(kib: int) -> None:
    """The shortcut is read band by band, beside what the other branch left in XRAM."""
    rng = np.random.default_rng(kib)
    builder = GraphBuilder("banded")
    x, other = (
        builder.input(name, shape, DType.INT8) for name, shape in (("x", (1, 8, 40, 40)), ("o", (1, 32, 20, 20)))
    )
    shortcut = convolution(builder, rng, x, 32, 1, 2, 0, "shortcut")
    total = addition(builder, shortcut, other, "sum")
    builder.output(convolution(builder, rng, total, 16, 1, 1, 0, "after"))
    generated = check_program(builder.finish(), replace(CONFIG, lram_bytes=kib << 10))
    assert any(
        name != "after" and layer.get("in_activation") == 8 * 20 * 20 for name, layer in generated.layer_bytes.items()
    )
