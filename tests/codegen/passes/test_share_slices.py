"""One transfer for both slices: what each of them needs as a whole is loaded once."""

from __future__ import annotations

from codegen.infra import check_program
from codegen.passes.graphs import applied, one_convolution

from torq_byoc.codegen.hl import Load, SliceCall
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.presets import preset
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


def fixed(split_axis: int | None) -> DecisionRecord:
    graph = one_convolution()
    tile = graph.tensors[graph.outputs[0]].shape
    return DecisionRecord({"conv": NodeOverride(tile, (0, 1, 2, 3), (split_axis,), 1)})


def test_weights_of_slices_that_share_rows_are_loaded_once() -> None:
    graph = one_convolution()
    (node,) = graph.nodes
    weights = sum(c.data.nbytes for c in kernel_for(node.op).constants(graph, node, NpuConfig()))
    found = applied("share-slices", graph, record=fixed(2))
    assert found.saved == {
        "in_transfers": 2,
        "in_bytes": weights,
        "out_transfers": 0,
        "out_bytes": 0,
        "slice_jobs": 0,
    }
    first, second = (op for op in found.after.ops if isinstance(op, SliceCall))
    assert [c.buffer for c in first.invocation.constants] == [c.buffer for c in second.invocation.constants]


def test_the_input_of_slices_that_share_filters_is_loaded_once() -> None:
    graph = one_convolution()
    found = applied("share-slices", graph, record=fixed(1))
    assert found.saved["in_bytes"] == graph.tensors["x"].nbytes
    assert len([op for op in found.after.ops if isinstance(op, Load) and op.source.tensor == "x"]) == 1


def test_one_slice_shares_nothing() -> None:
    assert applied("share-slices", one_convolution(), preset("sl2610-1slice")).saved["in_bytes"] == 0
    assert applied("share-slices", one_convolution(), record=fixed(None)).saved["in_transfers"] == 0


def test_bits_stay_the_same_without_it() -> None:
    check_program(one_convolution(), NpuConfig(), ("share-slices",))
