"""Whole programs: memory images, transfers, sequencer blocks, slice programs, and what callers get wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.npu_model import infra
from torq_byoc.errors import CalibrationError, ProgramFormatError, ShapeError, TorqError, VerificationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.simulator import Simulator


def _input(program: Program, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, program.inputs[0].shape).astype(np.int8)


def _relu(x: np.ndarray, zero_point: int = 3) -> np.ndarray:
    return np.clip(x.astype(int) + zero_point, 0, 127)


@pytest.mark.parametrize(("tiles", "count"), [(4, 256), (5, 77), (12, 64)])
def test_double_buffered_tiles_alternate_between_the_slices(tiles: int, count: int) -> None:
    program = infra.double_buffered_relu(tiles, count)
    x = _input(program)
    (result,) = Simulator(program).run({"x": x}).values()
    assert result.dtype == np.int8
    for tile in range(tiles):
        assert np.array_equal(result[tile], _relu(x[tile], tile % 2 + 1))


def test_a_convolution_split_between_the_slices_equals_plain_loops() -> None:
    program = infra.sliced_conv()
    x = _input(program)
    blob = next(s.data for s in program.segments if s.kind == "weights")
    padded = np.pad(x.astype(int), ((0, 0), (1, 1), (1, 1)), constant_values=2)
    half = len(blob) // 2
    expected = []
    for side in (0, 1):
        weights = np.frombuffer(blob[side * half :], np.int8, 4 * 27).astype(int).reshape(3, 3, 3, 4)
        pairs = np.frombuffer(blob[side * half + 4 * 27 :], np.int32, 8).reshape(4, 2).astype(int)
        for channel, (bias, scale) in enumerate(pairs):
            total = np.zeros((6, 7), int)
            for u, i, j in np.ndindex(3, 3, 3):
                total += padded[u, i : i + 6, j : j + 7] * weights[u, i, j, channel]
            expected.append(np.clip((((total + bias) * scale + 512) >> 10) - 5, -128, 127))
    (result,) = Simulator(program).run({"x": x}).values()
    assert np.array_equal(result, np.array(expected))


def test_tensors_spill_to_the_arena_and_come_back_through_strided_transfers() -> None:
    program = infra.spilled_chain()
    x = _input(program)
    (result,) = Simulator(program).run({"x": x}).values()
    first = _relu(x).ravel()
    half = first.size // 2
    spilled = np.empty((6, 40), int)
    spilled[:, :20], spilled[:, 20:] = first[:half].reshape(6, 20), first[half:].reshape(6, 20)
    flat = spilled.ravel()
    added = _relu((flat[:half] + flat[half:] + 1) >> 1)
    assert np.array_equal(result[:, :20], added.reshape(6, 20))
    assert np.array_equal(result[:, 20:], np.full((6, 20), 9))


@pytest.mark.parametrize("name", list(infra.programs()))
def test_the_scalar_interpreter_gives_the_same_outputs(name: str) -> None:
    program = infra.programs()[name]
    x = _input(program, 3)
    fast, slow = Simulator(program).run({"x": x}), Simulator(program, scalar=True).run({"x": x})
    assert fast.keys() == slow.keys()
    assert all(np.array_equal(fast[name], slow[name]) for name in fast)


def test_runs_do_not_see_each_other() -> None:
    program = infra.spilled_chain()
    simulator = Simulator(program)
    first = simulator.run({"x": _input(program, 1)})["y"]
    kept = first.copy()
    simulator.run({"x": _input(program, 2)})
    assert np.array_equal(first, kept)
    assert np.array_equal(simulator.run({"x": _input(program, 1)})["y"], kept)


def test_inputs_are_not_written() -> None:
    program = infra.double_buffered_relu()
    x = _input(program)
    x.flags.writeable = False
    Simulator(program).run({"x": x})


def test_inputs_of_any_memory_order_are_accepted() -> None:
    program = infra.double_buffered_relu()
    x = _input(program)
    expected = Simulator(program).run({"x": x})["y"]
    assert np.array_equal(Simulator(program).run({"x": np.asfortranarray(x)})["y"], expected)


@pytest.mark.parametrize(
    ("inputs", "error", "text"),
    [
        ({}, CalibrationError, "missing ['x']"),
        ({"x": np.zeros((4, 256), np.int8), "z": np.zeros(1)}, CalibrationError, "unknown ['z']"),
        ({"x": np.zeros((4, 256), np.float32)}, CalibrationError, "float32 where the program takes int8"),
        ({"x": np.zeros((4, 255), np.int8)}, ShapeError, "[4, 255] where the program takes [4, 256]"),
        ({"x": np.zeros((1, 4, 256), np.int8)}, ShapeError, "[1, 4, 256]"),
    ],
)
def test_wrong_inputs_are_refused_with_a_remedy(
    inputs: dict[str, np.ndarray], error: type[TorqError], text: str
) -> None:
    with pytest.raises(error) as caught:
        Simulator(infra.double_buffered_relu()).run(inputs)
    assert text in caught.value.why
    assert caught.value.remedy


def test_a_bf16_binding_takes_and_gives_bfloat16() -> None:
    program = infra.double_buffered_relu(tiles=2, count=64)
    as_bf16 = [replace(b, dtype=DType.BF16, shape=(2, 32)) for b in (*program.inputs, *program.outputs)]
    program = replace(program, inputs=(as_bf16[0],), outputs=(as_bf16[1],))
    result = Simulator(program).run({"x": np.zeros((2, 32), DType.BF16.numpy)})["y"]
    assert result.dtype == DType.BF16.numpy
    assert result.view(np.uint8).reshape(2, 64).tolist() == [[1] * 64, [2] * 64]


def test_transfers_outside_the_memories_are_refused() -> None:
    asm = infra.Assembler()
    source = asm.input("x", 64)
    asm.task(infra.load(asm.config.lram_bytes - 32, source, 64), infra.WAIT_IN)
    with pytest.raises(VerificationError, match="LRAM 524256"):
        Simulator(asm.finish()).run({"x": np.zeros(64, np.int8)})
    asm = infra.Assembler()
    source = asm.input("x", 64)
    asm.task(infra.load(0x1000, source + 32, 64), infra.WAIT_IN)
    with pytest.raises(VerificationError, match="no segment"):
        Simulator(asm.finish()).run({"x": np.zeros(64, np.int8)})


def test_constants_cannot_be_overwritten() -> None:
    asm = infra.Assembler()
    asm.input("x", 4)
    weights = asm.weights(bytes(64))
    asm.task(infra.store(0x1000, weights, 64), infra.WAIT_OUT)
    with pytest.raises(VerificationError, match="weights region"):
        Simulator(asm.finish()).run({"x": np.zeros(4, np.int8)})


def test_a_slice_started_on_bytes_that_are_no_program_is_refused() -> None:
    asm = infra.Assembler()
    asm.input("x", 4)
    program = asm.program(infra.relu(asm.config, 0x1000, 0x2000, 16))
    asm.task(asm.run(0, program, 0x3000), infra.SLICE_WAITS[0])
    with pytest.raises(ProgramFormatError):
        Simulator(asm.finish()).run({"x": np.zeros(4, np.int8)})
