"""Quantization: calibrated per-tensor activations, per-channel weights, standard QDQ ONNX out."""

from __future__ import annotations

from torq_byoc.quantize.data import load_calibration
from torq_byoc.quantize.quantization import quantization_of, quantize_model

__all__ = ["load_calibration", "quantization_of", "quantize_model"]
