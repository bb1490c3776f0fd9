"""Partitioning as a whole: coverage, reasons, names, the registry, real models."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.frontend.onnx_tools import shared_model
from tests.relay_patterns.infra import (
    CONFIG,
    Model,
    check_quantized,
    npu_outputs,
    onnxruntime_outputs,
    ops,
    partitioned,
    random_feeds,
    single_graph,
)
from torq_byoc.frontend import load_model, prepare, to_relax
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.relay_patterns import PATTERNS, lower_partition, partition, register


def conv(m, x, channels, out=(0.03, 3), kernel=1, seed=0):
    rng = np.random.default_rng(seed)
    w = m.qconst(rng.integers(-127, 128, (channels, channels, kernel, kernel)).astype(np.int8), 0.004)
    y = m.op("Conv", x, w, pads=[kernel // 2] * 4)
    return m.requantized(y, *out)


def test_residual_block_is_one_partition():
    """The block's input has two readers: without a dequantize for each the sum would stay on the CPU."""
    m = Model()
    x = conv(m, m.qinput((1, 4, 6, 6), 0.02, 5), 4)
    y = conv(m, x, 4, kernel=3, seed=1)
    m.output(m.quantize(m.op("Relu", m.op("Add", x, y)), 0.05, -128), "int8")
    graph = check_quantized(m.proto())
    assert ops(graph) == ["conv2d", "conv2d", "sum2"]


def test_float_boundary_stays_on_the_cpu():
    m = Model()
    x = m.input((1, 4, 6, 6))
    y = conv(m, m.requantized(x, 0.02, 5), 4)
    m.output(y)
    parts = partitioned(m.proto(), "quantized")
    assert [(op.op, op.reason) for op in parts.cpu_ops] == [
        ("quantize", "float input/output boundary"),
        ("dequantize", "float input/output boundary"),
    ]
    (nodes,) = parts.npu_ops.values()
    assert [pattern for _, pattern in nodes] == ["torq.conv2d"]
    graph = lower_partition(parts.function(parts.partitions[0]), CONFIG)
    assert graph.tensors[graph.inputs[0]].scale == pytest.approx(0.02)


def test_float_operator_outside_the_quantization_is_named_with_its_work():
    m = Model()
    x = m.qinput((1, 4, 6, 6), 0.02)
    y = m.op("Conv", x, m.const(np.ones((4, 4, 1, 1), np.float32)))
    m.output(y)
    parts = partitioned(m.proto(), "quantized")
    (left,) = [op for op in parts.cpu_ops if op.op == "nn.conv2d"]
    assert left.reason == "float operator without quantized inputs and a quantized result"
    assert left.macs == 4 * 36 * 4
    assert left.node == next(n.name for n in m.nodes if n.op_type == "Conv")


@pytest.mark.parametrize(
    "build, reason",
    [
        (lambda m, x: m.op("MatMul", x, m.qinput((8,), 0.1)), "rank 1"),
        (lambda m, x: m.op("Div", x, m.qinput((2, 8), 1e-4, 0, "int16")), "int16"),
    ],
)
def test_reasons_of_the_legality_checks(build, reason):
    m = Model()
    m.output(m.quantize(build(m, m.qinput((2, 8), 0.1)), 0.3), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert parts.partitions == ()
    assert any(reason in op.reason for op in parts.cpu_ops), parts.cpu_ops


def test_per_channel_activation_is_refused():
    m = Model()
    x = m.dequantize(m.input((1, 2, 4, 4), "int8"), np.array([0.1, 0.2]), 0, "int8", axis=1)
    m.output(m.quantize(m.op("Relu", x), 0.1), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert any("per channel" in op.reason for op in parts.cpu_ops), parts.cpu_ops


def test_a_quantize_behind_a_float_operator_stays_on_the_cpu():
    m = Model()
    m.output(m.quantize(m.op("Tanh", m.input((2, 8))), np.float32(0.1)), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert parts.partitions == ()


def test_cpu_operator_between_splits_into_ordered_partitions():
    m = Model()
    x = m.requantized(m.op("CumSum", conv(m, m.qinput((1, 4, 6, 6), 0.02, 5), 4), m.const(np.array(1, np.int64))), 0.1)
    m.output(m.quantize(m.op("Relu", conv(m, x, 4, seed=2)), 0.03, 3), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert parts.partitions == ("torq_partition_0", "torq_partition_1")
    assert all(str(parts.function(s).attrs["Codegen"]) == "torq" for s in parts.partitions)
    assert "torq_partition_0" in str(parts.module["main"])
    for symbol in parts.partitions:
        assert [n.op for n in lower_partition(parts.function(symbol), CONFIG).nodes] == ["conv2d"]


def test_results_with_several_readers_become_outputs():
    m = Model()
    y = m.quantize(m.op("Relu", m.qinput((1, 4, 6, 6), 0.02, 5)), 0.03, 3)
    z = m.quantize(m.op("Sigmoid", m.dequantize(y, 0.03, 3, "int8")), 1 / 256, -128)
    m.output(y, "int8")
    m.output(z, "int8")
    graph = check_quantized(m.proto())
    assert len(graph.outputs) == 2


def test_identical_groups_keep_their_own_names():
    m = Model()
    for _ in range(2):
        m.output(m.quantize(m.op("Sigmoid", m.qinput((1, 4), 0.02, 5)), 0.01, 3), "int8")
    parts = partitioned(m.proto(), "quantized")
    names = {name for groups in parts.npu_ops.values() for name, _ in groups}
    assert names == {n.name for n in m.nodes if n.op_type == "Sigmoid"}


def test_two_runs_give_the_same_graph():
    first, second = (single_graph(_two_layers(), "quantized") for _ in range(2))
    assert [n.name for n in first.nodes] == [n.name for n in second.nodes]
    assert list(first.tensors) == list(second.tensors)


def _two_layers():
    m = Model()
    x = conv(m, m.qinput((1, 4, 6, 6), 0.02, 5), 4)
    m.output(m.quantize(m.op("Relu", conv(m, x, 4, seed=3)), 0.03, 3), "int8")
    return m.proto()


def test_register_fills_the_registry_of_tvm_once():
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    register()
    names = [str(entry.name) for entry in get_patterns_with_prefix("torq")]
    register()
    assert [str(entry.name) for entry in get_patterns_with_prefix("torq")] == names
    assert names == [pattern.name for pattern in PATTERNS if pattern.precision != "mixed"]


def test_registered_patterns_work_with_tvm_alone():
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
    from tvm.relax.transform import FuseOpsByPattern

    register()
    m = Model()
    m.output(m.quantize(m.op("Add", m.qinput((1, 4), 0.02), m.qinput((1, 4), 0.03)), 0.05), "int8")
    fused = FuseOpsByPattern(get_patterns_with_prefix("torq"))(to_relax(prepare(m.proto())))
    composites = [str(f.attrs["Composite"]) for f in fused.functions.values() if "Composite" in (f.attrs or {})]
    assert composites == ["torq.sum"]


def _npu_macs(graphs):
    return sum(kernel_for(node.op).macs(graph, node) for graph in graphs for node in graph.nodes)


@pytest.mark.parametrize(
    "name, partitions",
    [
        ("peers/resnet8_int8", 1),
        ("peers/dscnn_kws_int8", 1),
        ("peers/ad_autoenc_int8", 1),
        ("peers/vww_mbv1_025_int8", 1),
        ("peers/vit2_int8", 1),
        ("peers/mobilenet_v2_int8", 1),
        ("qdq/resnet8_cifar_qdq_s8s8_pc", 1),
        ("qdq/ppocr_cls_qdq_s8s8", 1),
        ("qdq/orientation_qdq_s8s8_pc", 1),
    ],
)
def test_real_quantized_models_run_whole(name, partitions):
    module = to_relax(prepare(load_model(shared_model(f"{name}.onnx"))))
    start = time.perf_counter()
    parts = partition(module, "quantized", CONFIG)
    graphs = [lower_partition(parts.function(symbol), CONFIG) for symbol in parts.partitions]
    seconds = time.perf_counter() - start
    npu, cpu = _npu_macs(graphs), sum(op.macs for op in parts.cpu_ops)
    print(f"{name}: {len(graphs)} partitions, {seconds:.2f} s, {npu} MACs, on the CPU {[o.op for o in parts.cpu_ops]}")
    assert len(parts.partitions) <= partitions
    assert npu >= 0.99 * (npu + cpu)
    assert {op.reason for op in parts.cpu_ops} <= {"float input/output boundary"}


def test_resnet8_equals_onnxruntime_to_one_code():
    model = load_model(shared_model("peers/resnet8_int8.onnx"))
    graph = single_graph(prepare(model), "quantized")
    feeds = random_feeds(model)
    (ours,) = npu_outputs(graph, dict(zip(graph.inputs, feeds.values(), strict=True)))
    (theirs,) = onnxruntime_outputs(model, feeds)
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 2


def test_identity_pairs_change_nothing():
    """An extra quantize/dequantize pair of the same scale leaves the graph as it was."""

    def model(extra):
        m = Model()
        x = conv(m, m.qinput((1, 4, 6, 6), 0.02, 5), 4)
        if extra:
            x = m.requantized(x, 0.03, 3)
        m.output(m.quantize(m.op("Relu", conv(m, x, 4, seed=3)), 0.03, 3), "int8")
        return m.proto()

    with_pair, without = (single_graph(model(extra), "quantized") for extra in (True, False))
    assert ops(with_pair) == ops(without)


def test_movement_of_results_of_both_processors_stays_on_the_cpu():
    """The concatenation reads a partition's result, which every round of partitioning binds to another variable."""
    m = Model()
    x = conv(m, m.qinput((1, 4, 6, 6), 0.02, 5), 4)
    y = m.requantized(m.op("CumSum", x, m.const(np.array(1, np.int64))), 0.03, 3)
    m.output(m.quantize(m.op("Concat", x, y, axis=1), 0.03, 3), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert ("concat", "data movement between CPU operators") in [(op.op, op.reason) for op in parts.cpu_ops]
    assert [pattern for groups in parts.npu_ops.values() for _, pattern in groups] == ["torq.conv2d"]
