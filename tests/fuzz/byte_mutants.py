"""Damage that knows nothing of a format: cut, flipped, blanked, repeated and exchanged pieces."""

from __future__ import annotations

import numpy as np

Rng = np.random.Generator


def damaged(data: bytes, rng: Rng) -> bytes:
    """One damaged copy; half of the damage is done in the first kilobyte, where most structure is."""
    kinds = (_cut, _flip, _zeros, _ones, _repeat, _exchange, _remove, _insert, _digits)
    reach = len(data) if rng.integers(2) else min(len(data), 1024)
    return kinds[rng.integers(len(kinds))](bytearray(data), int(rng.integers(max(reach, 1))), rng)


def _cut(data: bytearray, start: int, rng: Rng) -> bytes:
    return bytes(data[:start])


def _flip(data: bytearray, start: int, rng: Rng) -> bytes:
    for place in rng.integers(0, len(data), rng.integers(1, 8)):
        data[place] ^= int(rng.integers(1, 256))
    data[start] ^= 1 << int(rng.integers(8))
    return bytes(data)


def _zeros(data: bytearray, start: int, rng: Rng) -> bytes:
    return _blank(data, start, rng, b"\0")


def _ones(data: bytearray, start: int, rng: Rng) -> bytes:
    return _blank(data, start, rng, b"\xff")


def _blank(data: bytearray, start: int, rng: Rng, filler: bytes) -> bytes:
    length = len(data[start : start + int(rng.integers(1, 200))])
    data[start : start + length] = filler * length
    return bytes(data)


def _repeat(data: bytearray, start: int, rng: Rng) -> bytes:
    chunk = data[start : start + int(rng.integers(1, 500))]
    data[start:start] = chunk * int(rng.integers(1, 20))
    return bytes(data)


def _exchange(data: bytearray, start: int, rng: Rng) -> bytes:
    other, length = int(rng.integers(len(data))), int(rng.integers(1, 100))
    data[start : start + length], data[other : other + length] = (
        data[other : other + length],
        data[start : start + length],
    )
    return bytes(data)


def _remove(data: bytearray, start: int, rng: Rng) -> bytes:
    del data[start : start + int(rng.integers(1, 100))]
    return bytes(data)


def _insert(data: bytearray, start: int, rng: Rng) -> bytes:
    data[start:start] = rng.integers(0, 256, rng.integers(1, 60), dtype=np.uint8).tobytes()
    return bytes(data)


def _digits(data: bytearray, start: int, rng: Rng) -> bytes:
    """Other digits in numbers that are written as text, so that the text stays well-formed."""
    found = [place for place, byte in enumerate(data) if 48 <= byte < 58]
    for place in rng.choice(found, min(3, len(found)), replace=False) if found else ():
        data[place] = 48 + int(rng.integers(10))
    return bytes(data)
