"""A slice program is as long as planned, wherever its operands come to lie."""

import numpy as np
import pytest
from codegen.infra import check_program

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType


@pytest.mark.parametrize("rows", [2, 3, 5, 9])
def test_rows_that_planning_addresses_could_make_coincide(rows: int) -> None:
    """Rows of 8 bytes: with operands planned 8 bytes apart, some row of one would be the other's only row, and the
    loop that steps from operand to operand would vanish from the planned descriptor."""
    builder = GraphBuilder("rows")
    x = builder.input("x", (rows, 8), DType.INT8)
    row = builder.constant(np.arange(-4, 4, dtype=np.int8).reshape(1, 8), "row")
    rescale = Rescale(np.zeros(1, np.int32), np.ones(1, np.int32))
    builder.output(builder.emit("minimum", [x, row], (rows, 8), DType.INT8, rescale=rescale))
    check_program(builder.finish(), NpuConfig())
