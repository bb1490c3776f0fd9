"""A small convolutional network in plain numpy: forward, backward, Adam.

image [n, 1, 8, 8] -> conv 3x3, 16 -> relu -> max pool 2x2 -> conv 3x3, 32 -> relu -> flatten -> linear, 10.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Parameters = dict[str, np.ndarray]

CLASSES = 10
CHANNELS = (1, 16, 32)
KERNEL = 3


def initial(seed: int) -> Parameters:
    """He-initialised weights, zero biases, float32."""
    rng = np.random.default_rng(seed)
    shapes = {
        "conv1.weight": (CHANNELS[1], CHANNELS[0], KERNEL, KERNEL),
        "conv2.weight": (CHANNELS[2], CHANNELS[1], KERNEL, KERNEL),
        "linear.weight": (CLASSES, CHANNELS[2] * 4 * 4),
    }
    parameters = {}
    for name, shape in shapes.items():
        fan_in = int(np.prod(shape[1:]))
        parameters[name] = rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)
        parameters[name.replace("weight", "bias")] = np.zeros(shape[0], np.float32)
    return parameters


def loss_and_gradients(parameters: Parameters, images: np.ndarray, labels: np.ndarray) -> tuple[float, Parameters]:
    """Mean cross-entropy of a batch and its gradient for every parameter."""
    first = _convolve(images, parameters["conv1.weight"], parameters["conv1.bias"])
    first_relu = np.maximum(first, 0)
    pooled, winner = _pool(first_relu)
    second = _convolve(pooled, parameters["conv2.weight"], parameters["conv2.bias"])
    second_relu = np.maximum(second, 0)
    flat = second_relu.reshape(len(images), -1)
    logits = flat @ parameters["linear.weight"].T + parameters["linear.bias"]

    shifted = logits - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    rows = np.arange(len(images))
    loss = -float(np.log(probabilities[rows, labels] + 1e-12).mean())

    d_logits = probabilities
    d_logits[rows, labels] -= 1
    d_logits /= len(images)
    d_second = (d_logits @ parameters["linear.weight"]).reshape(second.shape) * (second > 0)
    d_pooled, d_weight2, d_bias2 = _convolve_backward(pooled, parameters["conv2.weight"], d_second)
    d_first = _pool_backward(d_pooled, winner) * (first > 0)
    _, d_weight1, d_bias1 = _convolve_backward(images, parameters["conv1.weight"], d_first)
    return loss, {
        "conv1.weight": d_weight1,
        "conv1.bias": d_bias1,
        "conv2.weight": d_weight2,
        "conv2.bias": d_bias2,
        "linear.weight": d_logits.T @ flat,
        "linear.bias": d_logits.sum(axis=0),
    }


class Adam:
    """Adam with a learning rate that the caller gives at each step."""

    def __init__(self, parameters: Parameters, decay: float = 1e-4) -> None:
        self._mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._decay = decay
        self._steps = 0

    def update(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        """Change the parameters in place."""
        self._steps += 1
        for name, gradient in gradients.items():
            self._mean[name] += 0.1 * (gradient - self._mean[name])
            self._square[name] += 0.001 * (gradient**2 - self._square[name])
            mean = self._mean[name] / (1 - 0.9**self._steps)
            square = self._square[name] / (1 - 0.999**self._steps)
            step = mean / (np.sqrt(square) + 1e-8) + self._decay * parameters[name]
            parameters[name] -= np.float32(rate) * step


def _windows(images: np.ndarray) -> np.ndarray:
    """Patches [n, y, x, c, ky, kx] of the zero-padded images, for a 3x3 kernel at stride 1."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (KERNEL, KERNEL), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)


def _convolve(images: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    patches = _windows(images)
    flat = patches.reshape(-1, weight[0].size)
    result = flat @ weight.reshape(len(weight), -1).T + bias
    return result.reshape(*patches.shape[:3], -1).transpose(0, 3, 1, 2)


def _convolve_backward(
    images: np.ndarray, weight: np.ndarray, gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of a convolution's images, weight and bias."""
    rows = gradient.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    d_weight = (rows.T @ _windows(images).reshape(-1, weight[0].size)).reshape(weight.shape)
    turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    d_images = _convolve(gradient, turned, np.zeros(len(turned), np.float32))
    return d_images, d_weight, rows.sum(axis=0)


def _pool(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2x2 maxima, and which of the four was the (first) largest."""
    n, c, h, w = images.shape
    quads = images.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    return quads.max(axis=-1), quads.argmax(axis=-1)


def _pool_backward(gradient: np.ndarray, winner: np.ndarray) -> np.ndarray:
    n, c, h, w = gradient.shape
    quads = (np.arange(4) == winner[..., None]) * gradient[..., None]
    return quads.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)
