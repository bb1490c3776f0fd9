"""Train the network that ``torq demo`` runs, and write it with its data to ``torq_byoc/data``.

    python examples/train_digits.py [FOLDER]

The data are the 1797 images of 8x8 grey pixels (0..16) of scikit-learn's ``load_digits``.  Everything is
seeded; the same numpy build writes the same files.  Takes about ten seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from digits_network import Adam, Parameters, initial, loss_and_gradients
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits

SEED = 7
TEST_IMAGES = 540
CALIBRATION_IMAGES = 128
EPOCHS = 60
BATCH = 64
PEAK_RATE = 3e-3
DEFAULT_FOLDER = Path(__file__).parent.parent / "torq_byoc" / "data"


def main(folder: Path) -> None:
    """Train, print the accuracy on the test split, write model, calibration and test data."""
    rng = np.random.default_rng(SEED)
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    order = rng.permutation(len(images))
    test, training = order[:TEST_IMAGES], order[TEST_IMAGES:]

    parameters = train(images[training], labels[training], rng)
    model = to_onnx(parameters)
    logits = ReferenceEvaluator(model).run(None, {"image": images[test]})[0]
    print(f"test accuracy {np.mean(logits.argmax(axis=1) == labels[test]):.4f} on {TEST_IMAGES} images")

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "digits.onnx")
    np.savez_compressed(folder / "digits_calibration.npz", image=images[training[:CALIBRATION_IMAGES]])
    np.savez_compressed(folder / "digits_test.npz", image=images[test], labels=labels[test])


def train(images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Parameters:
    """Adam with a cosine learning rate on randomly shifted images."""
    parameters = initial(SEED)
    optimizer = Adam(parameters)
    for epoch in range(EPOCHS):
        rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(images))
        losses = []
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            loss, gradients = loss_and_gradients(parameters, shifted(images[batch], rng), labels[batch])
            optimizer.update(parameters, gradients, rate)
            losses.append(loss)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")
    return parameters


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by -1, 0 or 1 pixels sideways, zeros moving in."""
    padded = np.pad(images, ((0, 0), (0, 0), (0, 0), (1, 1)))
    offsets = rng.integers(0, 3, len(images))
    return np.stack([padded[i, :, :, offset : offset + 8] for i, offset in enumerate(offsets)])


def to_onnx(parameters: Parameters) -> onnx.ModelProto:
    """The network as ONNX, with a free batch dimension."""
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Flatten", ["r2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "linear.weight", "linear.bias"], ["logits"], "linear", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="train_digits")
    model.ir_version = 9
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER)
