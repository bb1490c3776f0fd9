"""The networks under test: where each comes from, its input shapes, and seeded inputs for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests.end_to_end import light_models
from torq_byoc.frontend import load_model, prepare

MODELS = Path(os.environ.get("TORQ_TEST_MODELS", Path(__file__).parents[3] / "shared" / "models"))

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """One network; ``source`` is a file below ``MODELS``, or the name of a light network."""

    name: str
    source: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    slow: bool = False
    text: bool = False
    """Whether images should show dark strokes in lines on white, as a text detector expects."""
    scale: float = 1.0
    """Spread of float inputs."""
    high: int = 256
    """End of integer inputs."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Inputs that are settings rather than data."""
    amplifies: bool = False
    """Whether it multiplies any rounding so much that onnxruntime's float32 alone leaves float64 by more than the
    end-to-end limit; it is then held to onnxruntime's distance."""

    @property
    def path(self) -> Path:
        return MODELS / self.source

    @property
    def available(self) -> bool:
        return self.source.startswith("light:") or self.path.exists()

    def model(self, disabled: Collection[str] = ()) -> onnx.ModelProto:
        """The prepared model, without some of the clean-up passes."""
        if self.source.startswith("light:"):
            return prepare(light_models.randomized(self.source.removeprefix("light:")), disabled=disabled)
        return prepare(load_model(self.path), dict(self.shapes), disabled=disabled)

    def feeds(self, model: onnx.ModelProto, seed: int = 0) -> Feeds:
        """Smooth images and heavy-tailed vectors; integers over their range."""
        rng = np.random.default_rng(seed)
        feeds = {value.name: _sample(rng, value, self) for value in model.graph.input}
        return {name: np.full_like(a, self.fixed[name]) if name in self.fixed else a for name, a in feeds.items()}

    def calibration(self, model: onnx.ModelProto, samples: int = 2) -> Feeds:
        """So many samples, one behind the other along the first axis."""
        several = [self.feeds(model, 100 + index) for index in range(samples)]
        return {name: np.concatenate([np.atleast_1d(feeds[name]) for feeds in several]) for name in several[0]}


def _sample(rng: np.random.Generator, value: onnx.ValueInfoProto, network: Network) -> np.ndarray:
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if dtype.itemsize == 1 else (0, network.high)
        return rng.integers(low, high, shape).astype(dtype)
    if network.text:
        return _strokes(rng, shape).astype(dtype)
    noise = rng.standard_normal(shape)
    if len(shape) == 4:
        coarse = rng.standard_normal((*shape[:2], -(-shape[2] // 8), -(-shape[3] // 8)))
        smooth = np.kron(coarse, np.ones((8, 8)))[..., : shape[2], : shape[3]]
        noise = 0.9 * smooth + 0.3 * noise
    return (noise * network.scale).astype(dtype)


def _strokes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Lines of narrow vertical and horizontal strokes, 16 pixels high, with gaps between words."""
    image = np.full(shape, 2.2)
    for top in range(12, shape[2] - 20, 40):
        for left in range(10, shape[3] - 12, 9):
            if rng.random() < 0.2:
                continue
            image[:, :, top : top + 16, left : left + 2] = -2.0
            height = int(rng.integers(0, 14))
            image[:, :, top + height : top + height + 2, left : left + 7] = -2.0
    return image + 0.05 * rng.standard_normal(shape)


def _peer(name: str, slow: bool = False) -> Network:
    return Network(f"{name}_int8", f"peers/{name}_int8.onnx", slow=slow)


QUANTIZED = (
    _peer("resnet8"),
    _peer("dscnn_kws"),
    _peer("ad_autoenc"),
    _peer("vww_mbv1_025"),
    _peer("vit2"),
    _peer("mobilenet_v2", slow=True),
    Network("resnet8_cifar_qdq", "qdq/resnet8_cifar_qdq_s8s8_pc.onnx"),
    Network("ppocr_cls_qdq", "qdq/ppocr_cls_qdq_s8s8.onnx", {"x": (1, 3, 48, 192)}, slow=True),
    Network("orientation_qdq", "qdq/orientation_qdq_s8s8_pc.onnx", {"x": (1, 3, 224, 224)}, slow=True),
)
"""Models that carry their scales."""

FLOAT = (
    Network("resnet8_cifar", "qdq/resnet8_cifar_fp32.onnx"),
    Network("mtcnn_pnet", "mtcnn_pnet.onnx", {"input_1": (1, 48, 64, 3)}),
    Network("mtcnn_rnet", "mtcnn_rnet.onnx", {"input_2": (4, 24, 24, 3)}),
    Network("mtcnn_onet", "mtcnn_onet.onnx", {"input_3": (4, 48, 48, 3)}, slow=True),
    Network("ppocr_v2_cls", "ppocr_v2_cls.onnx", {"x": (1, 3, 48, 192)}, slow=True),
    Network("orientation", "orientation_pplcnet.onnx", {"x": (1, 3, 224, 224)}, slow=True),
    Network("ppocr_v4_det", "ppocr_v4_det.onnx", {"x": (1, 3, 320, 320)}, slow=True, text=True),
    Network("dtln_1", "dtln_1_lstm.onnx", slow=True, scale=0.3),
    Network("dtln_2", "dtln_2.onnx", slow=True, scale=0.3),
    Network(
        "silero_vad",
        "silero_vad_op18_ifless.onnx",
        {"input": (1, 576), "state": (2, 1, 128)},
        slow=True,
        scale=0.1,
        fixed={"sr": 16000},
    ),
    Network("magika", "magika_v3_3.onnx", {"bytes": (1, 2048)}, slow=True),
    Network(
        "minilm",
        "minilm_l6_int8w.onnx",
        {name: (1, 64) for name in ("input_ids", "attention_mask", "token_type_ids")},
        slow=True,
        high=2000,
        fixed={"attention_mask": 1, "token_type_ids": 0},
        amplifies=True,
    ),
    *(
        Network(f"light_{name}", f"light:{name}", slow=name not in ("squeezenet", "shufflenet"))
        for name in light_models.NAMES
    ),
)
"""Float models: int8 with calibration from seeded data, and bf16."""

Chooser = Callable[[Network], bool]
