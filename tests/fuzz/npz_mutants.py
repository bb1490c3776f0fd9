"""Damaged npz files: bytes, and archives whose arrays or members are not what they should be."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping

import numpy as np

from tests.fuzz.awkward import Rng, pick
from tests.fuzz.byte_mutants import damaged

DTYPES = ("f2", "f8", ">f4", "c8", "i1", "u8", ">i2", "?", "U3", "S2", "M8[s]", "m8[D]", "V4", "f4,i4", "g")
HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f4', 'fortran_order': 7, 'shape': 3, }",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f4'}",
    "__import__('os').abort()",
    "(" * 3000,
    "",
)


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file's bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def mutant(arrays: Mapping[str, np.ndarray], rng: Rng) -> bytes:
    """One damaged file: a quarter by its bytes, the others by its content."""
    kind = rng.integers(8)
    if kind < 2:
        return damaged(npz(arrays), rng)
    if kind == 2:
        return _archive(_members(arrays), rng)
    changed = dict(arrays)
    name = pick(rng, changed)
    if kind == 3:
        changed[pick(rng, ("wrong", "", "a/b", "../up", "x" * 500, "labels"))] = changed.pop(name)
    elif kind == 4:
        changed[name] = _shaped(changed[name], rng)
    elif kind == 5:
        changed[name] = _typed(changed[name], rng)
    elif kind == 6:
        changed[name] = _valued(changed[name], rng)
    else:
        changed[pick(rng, ("more", name + " "))] = changed[name]
    return npz(changed)


def _shaped(array: np.ndarray, rng: Rng) -> np.ndarray:
    return pick(
        rng,
        (
            array[None],
            array[0],
            array.reshape(-1),
            array[..., :-1],
            array[:0],
            np.asarray(array.flat[0]),
            array.T,
            np.zeros((*array.shape[:1], 0, *array.shape[2:]), array.dtype),
            np.concatenate([array, array]),
        ),
    )


def _typed(array: np.ndarray, rng: Rng) -> np.ndarray:
    if rng.integers(6) == 0:
        return np.array([{"a": 1}, None], object)
    with np.errstate(all="ignore"):
        dtype = np.dtype(pick(rng, DTYPES))
        return np.zeros(array.shape, dtype) if dtype.kind in "VMm" else array.astype(dtype)


def _valued(array: np.ndarray, rng: Rng) -> np.ndarray:
    array = array.astype(np.float32) if rng.integers(4) else array.copy()
    if array.dtype.kind == "f":
        array.flat[rng.integers(array.size, size=3)] = pick(rng, (np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0))
        if rng.integers(3) == 0:
            array[...] = pick(rng, (0.0, np.nan, 3e38, 1e-45))
    return array


def _members(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(npz(arrays))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members: dict[str, bytes], rng: Rng) -> bytes:
    """A sound zip of unsound members."""
    buffer = io.BytesIO()
    name = pick(rng, members)
    kind = rng.integers(6)
    if kind == 0:
        head = (pick(rng, HEADERS) + "\n").encode()
        members[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + members[name][128:]
    elif kind == 1:
        members[name] = damaged(members[name], rng)
    elif kind == 2:
        members[name] = b""
    elif kind == 3:
        members[name + ".txt"] = members.pop(name)
    elif kind == 4:
        members[name] = bytes(20_000_000)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
            if kind == 5:
                archive.writestr("again/" + member, data)
    return buffer.getvalue()
