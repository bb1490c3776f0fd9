"""prepare() on trained models: the same numbers as onnxruntime without optimisations, deterministically."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.frontend.onnx_tools import assert_same_results, ops, random_feeds, shared_model
from torq_byoc.frontend import load_model, prepare

SHAPES = {
    "minilm_l6_int8w.onnx": {n: (1, 16) for n in ("input_ids", "attention_mask", "token_type_ids")},
    "mtcnn_pnet.onnx": {"input_1": (1, 48, 64, 3)},
    "ppocr_v2_cls.onnx": {"x": (1, 3, 48, 192)},
    "ppocr_v4_det.onnx": {"x": (1, 3, 64, 64)},
    "silero_vad_op18_ifless.onnx": {"input": (1, 576)},
}
BOUND = {"silero_vad_op18_ifless.onnx": {"sr": np.array(16000, np.int64)}}

FLOAT_MODELS = [
    "dtln_1_lstm.onnx",
    "dtln_2.onnx",
    "magika_v3_3.onnx",
    "minilm_l6_int8w.onnx",
    "mtcnn_onet.onnx",
    "mtcnn_pnet.onnx",
    "mtcnn_rnet.onnx",
    "orientation_pplcnet.onnx",
    "ppocr_v2_cls.onnx",
    "ppocr_v4_det.onnx",
    "silero_vad_op18_ifless.onnx",
    "qdq/resnet8_cifar_fp32.onnx",
]
QUANTIZED_MODELS = [
    "peers/ad_autoenc_int8.onnx",
    "peers/dscnn_kws_int8.onnx",
    "peers/mobilenet_v2_int8.onnx",
    "peers/resnet8_int8.onnx",
    "peers/vit2_int8.onnx",
    "peers/vww_mbv1_025_int8.onnx",
    "qdq/orientation_qdq_s8s8_pc.onnx",
    "qdq/ppocr_cls_qdq_s8s8.onnx",
    "qdq/resnet8_cifar_qdq_s8s8_pc.onnx",
]
FORBIDDEN = {"Constant", "Identity", "BatchNormalization", "Shape", "If", "Dropout", "ConstantOfShape", "Sum"}


def prepared(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    model = load_model(shared_model(name))
    return model, prepare(model, SHAPES.get(name), bind=BOUND.get(name))


@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_models_keep_their_results(name):
    model, result = prepared(name)
    # A tiny sigmoid output is compared on an absolute scale that float32 can resolve.
    bound = 5e-2 if name == "ppocr_v4_det.onnx" else 5e-6
    assert_same_results(model, result, bound, {**random_feeds(result), **BOUND.get(name, {})})
    assert not FORBIDDEN & set(ops(result))
    assert all(d.dim_value > 0 for v in result.graph.output for d in v.type.tensor_type.shape.dim)


@pytest.mark.parametrize("name", QUANTIZED_MODELS)
def test_quantized_models_are_bit_exact(name):
    model, result = prepared(name)
    assert_same_results(model, result, rtol=0)
    assert not FORBIDDEN & set(ops(result))
    assert ops(result).count("QuantizeLinear") == ops(model).count("QuantizeLinear")


@pytest.mark.parametrize("name", ["orientation_pplcnet.onnx", "ppocr_v2_cls.onnx", "qdq/resnet8_cifar_fp32.onnx"])
def test_preparing_twice_changes_nothing_more(name):
    _, once = prepared(name)
    twice = prepare(once)
    assert ops(twice) == ops(once)
    assert [n.name for n in twice.graph.node] == [n.name for n in once.graph.node]


def test_every_node_has_a_unique_name_and_static_shapes():
    _, result = prepared("ppocr_v2_cls.onnx")
    names = [n.name for n in result.graph.node]
    assert all(names) and len(set(names)) == len(names)
    shapes = {v.name: v for v in [*result.graph.value_info, *result.graph.output]}
    for name in (o for n in result.graph.node for o in n.output):
        assert all(d.dim_value > 0 for d in shapes[name].type.tensor_type.shape.dim), name


def random_weights(name: str, keep: int) -> onnx.ModelProto:
    """A light ONNX network with random weights in place of its constant ones, cut after ``keep`` nodes."""
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{name} is not part of the installed onnx package")
    model, rng = onnx.load(path), np.random.default_rng(0)
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = stored[node.input[0]]
            spread = math.sqrt(2 / max(1, math.prod(shape[1:])))
            values = rng.uniform(0.5, 1.5, shape) if len(shape) == 1 else rng.standard_normal(shape) * spread
            model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
        node_inputs = {v.name for v in model.graph.input}
        if node.op_type == "ConstantOfShape" and node.output[0] not in node_inputs:  # IR 3 wants weights as inputs too
            model.graph.input.append(onnx.helper.make_tensor_value_info(node.output[0], 1, [int(n) for n in shape]))
    layers = [n for n in model.graph.node if n.op_type != "ConstantOfShape"][:keep]
    del model.graph.node[:]
    model.graph.node.extend(layers)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(layers[-1].output[0], 1, None))
    return model


@pytest.mark.parametrize(
    ("name", "keep"),
    [("light_squeezenet", 60), ("light_shufflenet", 90), ("light_resnet50", 40), ("light_inception_v2", 60)],
)
def test_light_networks_with_random_weights(name, keep):
    model = random_weights(name, keep)
    result = prepare(model)
    assert_same_results(model, result, 2e-5)
    assert not FORBIDDEN & set(ops(result))
    assert len(result.graph.input) == 1  # their weights were declared as inputs


def test_same_bytes_whatever_the_hash_seed():
    path = shared_model("ppocr_v2_cls.onnx")
    code = (
        "import hashlib; from torq_byoc.frontend import load_model, prepare;"
        f"m = prepare(load_model({str(path)!r}), {{'x': (1, 3, 48, 192)}});"
        "print(hashlib.sha256(m.SerializeToString(deterministic=True)).hexdigest())"
    )
    root = Path(__file__).parents[2]
    digests = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_frontend_does_not_import_tvm():
    code = "import sys, torq_byoc.frontend; print('tvm' in sys.modules, 'onnxruntime' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
