"""Einsum -> products two operands at a time: sums, ``permute_dims``, ``reshape`` and ``matmul``."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, static_shape


@dataclass(frozen=True)
class _Term:
    """An operand with one letter for each of its dimensions."""

    value: relax.Expr
    letters: str
    extents: tuple[int, ...]

    def extent(self, letter: str) -> int:
        return self.extents[self.letters.index(letter)]

    def ordered(self, letters: str, builder: relax.BlockBuilder) -> _Term:
        """The same with its dimensions in another order."""
        if letters == self.letters:
            return self
        axes = [self.letters.index(letter) for letter in letters]
        value = builder.normalize(relax.op.permute_dims(self.value, axes))
        return _Term(value, letters, tuple(self.extents[a] for a in axes))

    def summed(self, dropped: str, builder: relax.BlockBuilder) -> _Term:
        """Without some of its letters, over which it is added up."""
        axes = [i for i, letter in enumerate(self.letters) if letter in dropped]
        if not axes:
            return self
        kept = [i for i in range(len(self.letters)) if i not in axes]
        value = builder.normalize(relax.op.sum(self.value, axis=axes))
        return _Term(value, "".join(self.letters[i] for i in kept), tuple(self.extents[i] for i in kept))


def einsum(call: OnnxCall) -> relax.Expr:
    """Einsum of any number of operands, with ``...``, repeated letters and an implicit result."""
    operands = [call.data(i) for i in range(len(call.inputs))]
    shapes = [static_shape(operand, call) for operand in operands]
    letters, result = _parsed(call, shapes)
    terms = [
        _diagonal(operand, names, shape, call.builder)
        for operand, names, shape in zip(operands, letters, shapes, strict=True)
    ]
    terms = _without_broadcasts(terms, call.builder)
    product = terms[0]
    for position, term in enumerate(terms[1:], start=1):
        needed = set(result).union(*(later.letters for later in terms[position + 1 :]))
        product = _contracted(product, term, needed, call.builder)
    product = product.summed("".join(set(product.letters) - set(result)), call.builder)
    return product.ordered(result, call.builder).value


def _parsed(call: OnnxCall, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """Letters of every operand and of the result; dimensions under ``...`` get letters of their own."""
    left, arrow, right = call.text("equation", "").replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(shapes):
        raise call.unsupported(f"the equation names {len(parts)} operands, the node has {len(shapes)}")
    free = [c for c in string.ascii_letters if c not in left]
    counts = [len(shape) - len(part.replace("...", "")) for part, shape in zip(parts, shapes, strict=True)]
    width = max((n for n, part in zip(counts, parts, strict=True) if "..." in part), default=0)
    if any(n < 0 or (n and "..." not in part) for n, part in zip(counts, parts, strict=True)) or width > len(free):
        raise call.unsupported(f"the equation {left!r} does not fit operands of {[len(s) for s in shapes]} dimensions")
    covered = "".join(free[:width])
    named = [p.replace("...", covered[width - n :] if n else "") for n, p in zip(counts, parts, strict=True)]
    if arrow:
        result = right.replace("...", covered)
    else:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        result = covered + "".join(once)
    if not set(result) <= set("".join(named)) or len(set(result)) != len(result):
        raise call.unsupported(f"the result {right!r} is not made of the operands' letters, each once")
    return named, result


def _diagonal(x: relax.Expr, letters: str, shape: tuple[int, ...], builder: relax.BlockBuilder) -> _Term:
    """One dimension in place of those that share a letter."""
    term = _Term(x, letters, shape)
    for letter in dict.fromkeys(letters):
        while term.letters.count(letter) > 1:
            first = term.letters.index(letter)
            second = term.letters.index(letter, first + 1)
            term = _merged(term, first, second, builder)
    return term


def _merged(term: _Term, first: int, second: int, builder: relax.BlockBuilder) -> _Term:
    rest = [i for i in range(len(term.letters)) if i not in (first, second)]
    extent, others = term.extents[first], tuple(term.extents[i] for i in rest)
    moved = builder.normalize(relax.op.permute_dims(term.value, [first, second, *rest]))
    flat = builder.normalize(relax.op.reshape(moved, (extent * extent, *others)))
    picked = relax.op.take(flat, constant(np.arange(extent, dtype=np.int64) * (extent + 1)), 0, mode="clip")
    letters = term.letters[first] + "".join(term.letters[i] for i in rest)
    return _Term(builder.normalize(picked), letters, (extent, *others))


def _without_broadcasts(terms: Sequence[_Term], builder: relax.BlockBuilder) -> list[_Term]:
    """A dimension of 1 that meets a larger one under its letter is dropped: the product spreads it anyway."""
    largest: dict[str, int] = {}
    for term in terms:
        for letter, extent in zip(term.letters, term.extents, strict=True):
            largest[letter] = max(extent, largest.get(letter, 1))
    result = []
    for term in terms:
        spread = [c for c, n in zip(term.letters, term.extents, strict=True) if n == 1 and largest[c] > 1]
        kept = [i for i, letter in enumerate(term.letters) if letter not in spread]
        extents = tuple(term.extents[i] for i in kept)
        value = builder.normalize(relax.op.reshape(term.value, extents)) if spread else term.value
        result.append(_Term(value, "".join(term.letters[i] for i in kept), extents))
    return result


def _contracted(a: _Term, b: _Term, needed: set[str], builder: relax.BlockBuilder) -> _Term:
    """The product of two operands, added up over letters that nothing needs any more."""
    a = a.summed("".join(set(a.letters) - set(b.letters) - needed), builder)
    b = b.summed("".join(set(b.letters) - set(a.letters) - needed), builder)
    shared = [c for c in a.letters if c in b.letters]
    batch = "".join(c for c in shared if c in needed)
    inner = "".join(c for c in shared if c not in needed)
    rows = "".join(c for c in a.letters if c not in shared)
    columns = "".join(c for c in b.letters if c not in shared)
    a, b = a.ordered(batch + rows + inner, builder), b.ordered(batch + inner + columns, builder)

    def size(term: _Term, letters: str) -> int:
        return math.prod(term.extent(c) for c in letters)

    lead = (size(a, batch),) if batch else ()
    left = relax.op.reshape(a.value, (*lead, size(a, rows), size(a, inner)))
    right = relax.op.reshape(b.value, (*lead, size(b, inner), size(b, columns)))
    op = relax.op.matmul if inner else relax.op.multiply  # without inner letters these are a column and a row
    product = builder.normalize(op(builder.normalize(left), builder.normalize(right)))
    extents = tuple(a.extent(c) for c in batch + rows) + tuple(b.extent(c) for c in columns)
    return _Term(builder.normalize(relax.op.reshape(product, extents)), batch + rows + columns, extents)


CONVERTERS: dict[str, Converter] = {"Einsum": einsum}
