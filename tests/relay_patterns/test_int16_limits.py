"""16-bit tensors that the NPU could only compute wrongly stay on the CPU, with the reason."""

import pytest

from tests.relay_patterns.infra import Model, check_quantized, partitioned


def _reasons(m: Model) -> str:
    parts = partitioned(m.proto(), "quantized")
    assert parts.partitions == ()
    return " ".join(op.reason for op in parts.cpu_ops)


@pytest.mark.parametrize("kind", ["Mul", "MatMul", "LRN"])
def test_zero_points_that_would_have_to_be_removed(kind: str) -> None:
    """int16 codes without their zero point need 17 bits."""
    m = Model()
    x = m.qinput((1, 4, 6, 6), 1e-4, 2000, "int16")
    y = {
        "Mul": lambda: m.op("Mul", x, x),
        "MatMul": lambda: m.op("MatMul", x, m.op("Transpose", x, perm=[0, 1, 3, 2])),
        "LRN": lambda: m.op("LRN", x, size=3),
    }[kind]()
    m.output(m.quantize(y, 1e-3, 0, "int16"), "int16")
    if kind == "Mul":  # of one tensor with itself: a table, which needs no products
        assert partitioned(m.proto(), "quantized").partitions
        return
    assert "zero point" in _reasons(m)


def test_functions_too_steep_for_a_table() -> None:
    """A step between two codes is lost between the 512 pieces of a table, unless results are constant around it."""
    steep, step = Model(), Model()
    for model, kind, scale in ((steep, "Log", 3e-4), (step, "Tanh", 1 / 32768)):
        x = model.qinput((1, 64), 0.5, 0, "int16")
        model.output(model.quantize(model.op(kind, x), scale, 0, "int16"), "int16")
    assert "too steep" in _reasons(steep)
    assert len(partitioned(step.proto(), "quantized").partitions) == 1


def test_lrn_of_int16() -> None:
    """Squares of 16-bit codes exceed 32 bits when a window of them is summed."""
    m = Model()
    m.output(
        m.quantize(m.op("LRN", m.qinput((1, 9, 3, 5), 9e-4, 0, "int16"), size=3, alpha=1e-4), 1e-3, 0, "int16"), "int16"
    )
    check_quantized(m.proto(), max_lsb=4)
