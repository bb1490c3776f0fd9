"""ONNX element types: how many bits an element takes and where a TensorProto keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto


@dataclass(frozen=True)
class ElementType:
    """Bits an element takes in ``raw_data``, and the typed field used instead of it."""

    name: str
    bits: int
    field: str
    per_entry: int = 1
    """Elements that one entry of the typed field holds (4-bit types pack two)."""


def _known() -> dict[int, ElementType]:
    rows = [
        ("FLOAT", 32, "float_data"),
        ("DOUBLE", 64, "double_data"),
        ("FLOAT16", 16, "int32_data"),
        ("BFLOAT16", 16, "int32_data"),
        ("INT8", 8, "int32_data"),
        ("UINT8", 8, "int32_data"),
        ("INT16", 16, "int32_data"),
        ("UINT16", 16, "int32_data"),
        ("INT32", 32, "int32_data"),
        ("UINT32", 32, "uint64_data"),
        ("INT64", 64, "int64_data"),
        ("UINT64", 64, "uint64_data"),
        ("BOOL", 8, "int32_data"),
        ("FLOAT8E4M3FN", 8, "int32_data"),
        ("FLOAT8E4M3FNUZ", 8, "int32_data"),
        ("FLOAT8E5M2", 8, "int32_data"),
        ("FLOAT8E5M2FNUZ", 8, "int32_data"),
    ]
    table = {getattr(TensorProto, name): ElementType(name, bits, field) for name, bits, field in rows}
    for name in ("INT4", "UINT4"):
        table[getattr(TensorProto, name)] = ElementType(name, 4, "int32_data", per_entry=2)
    return table


ELEMENT_TYPES: dict[int, ElementType] = _known()
"""Element types whose tensors can be read, by their ONNX number.  Strings and complex numbers are not among them."""


def storage_bytes(elements: int, data_type: int) -> int:
    """Bytes that ``raw_data`` must hold for so many elements of a known type."""
    return -(-elements * ELEMENT_TYPES[data_type].bits // 8)


def type_name(data_type: int) -> str:
    """The ONNX name of an element type, or its number when ONNX does not define it."""
    names = {number: name for name, number in TensorProto.DataType.items()}
    return names.get(data_type, f"number {data_type}")
