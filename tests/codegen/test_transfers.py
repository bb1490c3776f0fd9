"""DMA transfers move exactly the bytes of a region, against numpy slicing."""

import numpy as np
import pytest

from torq_byoc.codegen.hl import Transfer
from torq_byoc.codegen.tile_places import fill, place_bytes, tile_place
from torq_byoc.codegen.transfers import dense_transfers, phased_extent, phased_transfers, row_major_strides
from torq_byoc.kernels.kernel import Layout, Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType

CONFIG = NpuConfig()


def move(transfers: list[Transfer], source: np.ndarray, size: int) -> np.ndarray:
    """Carry the transfers out byte by byte; fails when one reads outside the source."""
    target = np.full(size, 255, np.uint8)
    for transfer in transfers:
        assert len(transfer.dims) <= CONFIG.limits.dma_strided_dims
        offsets = np.arange(transfer.run)
        for count, stride in reversed(transfer.dims):
            offsets = (np.arange(count)[:, None] * stride + offsets[None, :]).reshape(-1)
        offsets = offsets + transfer.xram_offset
        assert offsets.min() >= 0 and offsets.max() < source.size
        target[transfer.lram_offset : transfer.lram_offset + offsets.size] = source[offsets]
    return target


def random_region(rng: np.random.Generator, phases: tuple[int, int]) -> tuple[tuple[int, ...], Region]:
    shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(2, 6)))
    start = [int(rng.integers(0, extent)) for extent in shape]
    start[-2] -= start[-2] % phases[0]
    start[-1] -= start[-1] % phases[1]
    extent = [int(rng.integers(1, n - s + 1)) for n, s in zip(shape, start, strict=True)]
    return shape, Region(tuple(start), tuple(extent))


@pytest.mark.parametrize("seed", range(40))
def test_dense_region_arrives_row_major(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, region = random_region(rng, (1, 1))
    size = int(rng.choice([1, 2, 4]))
    tensor = rng.integers(0, 255, (*shape, size)).astype(np.uint8)
    box = tensor[tuple(slice(s, s + n) for s, n in zip(region.start, region.extent, strict=True))]
    moved = move(dense_transfers(row_major_strides(shape, size), region, size, CONFIG), tensor.reshape(-1), box.size)
    assert np.array_equal(moved, box.reshape(-1))


@pytest.mark.parametrize("seed", range(60))
def test_phased_region_is_split_by_row_and_column_phase(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phases = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    shape, region = random_region(rng, phases)
    size = int(rng.choice([1, 2]))
    tensor = rng.integers(0, 255, (*shape, size)).astype(np.uint8)
    box = tensor[tuple(slice(s, s + n) for s, n in zip(region.start, region.extent, strict=True))]
    rows, columns = phased_extent(region, phases)
    planes = int(np.prod(region.extent[:-2]))
    total = phases[0] * phases[1] * planes * rows * columns * size
    moved = move(
        phased_transfers(shape, row_major_strides(shape, size), region, size, phases, phases, CONFIG),
        tensor.reshape(-1),
        total,
    )
    moved = moved.reshape(phases[0], phases[1], planes, rows, columns, size)
    box = box.reshape(planes, region.extent[-2], region.extent[-1], size)
    for y in range(region.extent[-2]):
        for x in range(region.extent[-1]):
            phase = moved[y % phases[0], x % phases[1], :, y // phases[0], x // phases[1]]
            assert np.array_equal(phase, box[:, y, x])


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("phases", [(1, 1), (2, 2), (1, 3)])
def test_a_region_arrives_in_another_order_of_axes(seed: int, phases: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    shape, region = random_region(rng, phases)
    order = tuple(int(axis) for axis in rng.permutation(len(shape)))
    image = rng.integers(0, 255, [shape[order.index(axis)] for axis in range(len(shape))]).astype(np.uint8)
    box = image.transpose(order)[tuple(slice(s, s + n) for s, n in zip(region.start, region.extent, strict=True))]
    place = tile_place(0, shape, DType.UINT8, region, Layout(phases), order)
    transfers, _ = fill(place, CONFIG)
    moved = move(transfers, image.reshape(-1), place_bytes(place))
    if phases == (1, 1):
        assert np.array_equal(moved, box.reshape(-1))
        return
    rows, columns = phased_extent(region, phases)
    split = moved.reshape(*phases, *region.extent[:-2], rows, columns)
    for y, x in np.ndindex(*region.extent[-2:]):
        phase = split[y % phases[0], x % phases[1], ..., y // phases[0], x // phases[1]]
        assert np.array_equal(phase, box[..., y, x])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("alone", [(True, True), (True, False), (False, True)])
def test_phases_that_nobody_reads_stay_away(seed: int, alone: tuple[bool, bool]) -> None:
    rng, layout = np.random.default_rng(seed), Layout((2, 2), alone)
    shape, region = random_region(rng, layout.phases)
    tensor = rng.integers(0, 255, shape).astype(np.uint8)
    box = tensor[tuple(slice(s, s + n) for s, n in zip(region.start, region.extent, strict=True))]
    place = tile_place(0, shape, DType.UINT8, region, layout)
    transfers, read = fill(place, CONFIG)
    assert place_bytes(place) == layout.elements(region.extent)
    if alone == (True, True):
        assert read == region
        assert np.array_equal(move(transfers, tensor.reshape(-1), place_bytes(place)), box[..., ::2, ::2].reshape(-1))
    rows, columns = phased_extent(region, layout.phases)
    kept = move(transfers, tensor.reshape(-1), place_bytes(place))
    kept = kept.reshape(*layout.kept, *region.extent[:-2], rows, columns)
    for y, x in np.ndindex(*region.extent[-2:]):
        if y % 2 < layout.kept[0] and x % 2 < layout.kept[1]:
            assert np.array_equal(kept[y % 2, x % 2, ..., y // 2, x // 2], box[..., y, x])


def test_contiguous_tensor_is_one_run() -> None:
    (transfer,) = dense_transfers((128, 16, 4, 1), Region((0, 2, 0, 0), (1, 3, 4, 4)), 1, CONFIG)
    assert transfer == Transfer(0, 32, 48)


def test_row_tile_of_planes_is_one_strided_transfer() -> None:
    (transfer,) = dense_transfers((320, 40, 4, 1), Region((0, 0, 2, 0), (1, 8, 3, 4)), 1, CONFIG)
    assert transfer == Transfer(0, 8, 12, ((8, 40),))
