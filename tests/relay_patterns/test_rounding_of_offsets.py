"""x + constant and hard sigmoids round like the float operators even where every input is on a tie."""

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, npu_outputs, onnxruntime_outputs, single_graph


@pytest.mark.parametrize(
    ("scale", "out_scale", "offset"), [(0.08515022695064545, 0.04724409431219101, 3.0), (0.0342038, 0.0472441, 3.0)]
)
def test_offset_of_half_a_code(scale: float, out_scale: float, offset: float) -> None:
    """3.0 is 63.5 output codes: an input of 0 is on a tie."""
    m = Model()
    x = m.qinput((1, 256), scale)
    y = m.op("Add", x, m.const(np.float32(offset)))
    y = m.op("Clip", y, m.const(np.float32(0)), m.const(np.float32(6)))
    m.output(m.quantize(y, out_scale), "int8")
    _check_every_code(m)


def test_hard_sigmoid() -> None:
    m = Model()
    y = m.op("HardSigmoid", m.qinput((1, 256), 0.06, 4), alpha=1 / 6, beta=0.5)
    m.output(m.quantize(y, 1 / 255, -128), "int8")
    _check_every_code(m)


def _check_every_code(m: Model) -> None:
    model = m.proto()
    feeds = {model.graph.input[0].name: np.arange(-128, 128, dtype=np.int8).reshape(1, 256)}
    (ours,) = npu_outputs(single_graph(model, "quantized"), feeds)
    (theirs,) = onnxruntime_outputs(model, feeds)
    assert np.count_nonzero(ours != theirs) <= 1
