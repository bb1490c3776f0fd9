"""What calibration found out: ranges of every tensor by every method, and how far they are to be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from torq_byoc.errors import CalibrationError
from torq_byoc.quantize.observers import Range

SETTLED = 0.1
"""Growth of a range, over its width, in the last doubling of the samples up to which it counts as settled."""
RARE = 1e-2
"""Part of unseen values outside a range that is no cause for concern."""
_CHANCE = 8
"""Part of new values, times the number of old ones, that may lie outside by chance: 2 are expected."""
FEWEST_SAMPLES = 4
"""With fewer, none are held out."""


class MethodRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A method's range.

    ``sqnr`` is what 8 bits over it are expected to keep of the tensor, in dB; 0 where values were not counted.
    """

    low: float
    high: float
    sqnr: float

    @property
    def range(self) -> Range:
        """The range alone."""
        return Range(self.low, self.high)


class TensorCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the samples showed of one tensor.

    ``values`` counts all values seen.  ``elements`` is how many of them share the energy of a sample, (sum of x^2)^2 /
    sum of x^4: 1 where one value outdoes all others; 0 where values were not counted.  ``methods`` has a range by the
    name of each method; ``growth`` the extremes (low, high) after a quarter, half and all of the samples; ``outside``
    the part of the held-out samples' values beyond the extremes of the others, None when no samples were held out.
    """

    values: int
    elements: float
    methods: dict[str, MethodRange]
    growth: tuple[tuple[float, float], ...]
    outside: float | None

    @property
    def moved(self) -> float:
        """Part of the final width, zero included, that the last doubling of the samples added."""
        (low, high), (end_low, end_high) = self.growth[-2:]
        width = max(end_high, 0.0) - min(end_low, 0.0)
        return ((low - end_low) + (end_high - high)) / width if width > 0.0 else 0.0

    @property
    def settled(self) -> bool:
        """Whether more samples are unlikely to widen the range much."""
        return self.moved <= SETTLED

    @property
    def strays(self) -> bool:
        """Whether more held-out values lie outside than chance lets: of few values, some are always the largest."""
        return self.outside is not None and self.outside > RARE + _CHANCE / max(self.values, 1)


class CalibrationTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ranges of all tensors of one model.

    ``samples`` and ``held_out`` count all samples and those of them that were held out; ``tensors`` are in order of
    their names.
    """

    samples: int
    held_out: int
    tensors: dict[str, TensorCalibration]

    def ranges(self, method: str) -> dict[str, Range]:
        """Every tensor's range by one method that was asked for."""
        return {name: tensor.methods[method].range for name, tensor in self.tensors.items()}

    def dumps(self) -> bytes:
        """JSON, the same for the same table."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1)

    @classmethod
    def loads(cls, text: bytes | str) -> CalibrationTable:
        """The table of a JSON text.

        Raises:
            CalibrationError: it is not one.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CalibrationError(
                "the calibration table cannot be read", why=str(error), remedy="give a table that calibration wrote"
            ) from error

    def doubts(self) -> Iterator[str]:
        """What speaks against the ranges, as sentences."""
        beyond = {name: tensor.outside or 0.0 for name, tensor in self.tensors.items() if tensor.strays}
        if beyond:
            yield (
                f"of {len(beyond)} of {len(self.tensors)} tensors more than {RARE:.0%} of the values in the last"
                f" {_count(self.held_out)} of the calibration data lie outside the range of those before"
                f" ({_worst(beyond)}): the samples are unlike each other or too few"
            )

    def remarks(self) -> Iterator[str]:
        """What a reader should know about the ranges, as sentences."""
        if not self.held_out:
            yield (
                f"calibrated on {_count(self.samples)}: with fewer than {FEWEST_SAMPLES} none are held out, and nobody"
                " can say how the ranges do on other data"
            )
            return
        loose = {name: tensor.moved for name, tensor in self.tensors.items() if not tensor.settled}
        if loose:
            yield (
                f"the last doubling of the calibration samples to {self.samples} widened the ranges of {len(loose)} of"
                f" {len(self.tensors)} tensors by more than {SETTLED:.0%} ({_worst(loose)}): more samples would give"
                " better ones"
            )


def _worst(found: Mapping[str, float]) -> str:
    name = max(found, key=lambda each: (found[each], each))
    return f"most for {name}, {found[name]:.2%}"


def _count(samples: int) -> str:
    return "1 sample" if samples == 1 else f"{samples} samples"
