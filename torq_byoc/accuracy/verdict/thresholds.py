"""What a model must reach to be shipped: a YAML file, checked key by key.

Every key may be left out.  A limit of null is none::

    outputs:                 # every output, and every part of one that a concatenation is made of
      min_cosine: 0.99
      min_sqnr: 15.0         # dB
      max_error: null        # largest absolute difference
      min_agreement: null    # part of the places with the same largest channel
      names:                 # others for some: "output", or "output/part"
        "scores/class": {min_cosine: 0.999}
    layers:                  # every stored result
      min_cosine: null
      min_sqnr: null
      min_local_sqnr: null   # of the layer alone, on the reference's inputs
      max_saturated: null    # part of the values outside the quantizer's range
      names: {}              # others for some, by tensor or node
    labels:                  # with labels in the data
      max_top1_loss: 0.01    # against the float model; 0.01 is one point
      max_top5_loss: 0.01
      min_top1: null
    lint:
      accept: []             # names of rules whose errors do not count
    metric:                  # with --metric: by name of a result ("metric" when it is one number)
      f1: {min: 0.9, max: null}

Whatever the file says, a part of an output that is one constant on the NPU and none in float is a miss, and so is a
program that differs from its integer reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from torq_byoc.errors import AccuracyError, choose_from
from torq_byoc.files import Expected, read_text
from torq_byoc.npu_model.strict_yaml import parse_yaml
from torq_byoc.typed_data import typed

_FILE = Expected(AccuracyError, "the thresholds", "give a YAML file as docs/accuracy.md describes it", 1 << 20)

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Cosine = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]


class OutputLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of one output or part."""

    min_cosine: Cosine | None = 0.99
    min_sqnr: float | None = 15.0
    max_error: NotNegative | None = None
    min_agreement: Share | None = None


class LayerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of one layer."""

    min_cosine: Cosine | None = None
    min_sqnr: float | None = None
    min_local_sqnr: float | None = None
    max_saturated: Share | None = None


class Outputs(OutputLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of all outputs, and other ones for some."""

    names: dict[str, dict[str, float | str | None]] = {}

    def of(self, output: str, part: str) -> OutputLimits:
        """The limits of a part: its own before its output's before everybody's."""
        own = {**self.names.get(output, {}), **self.names.get(f"{output}/{part}", {})}
        return _overridden(self, OutputLimits, own)


class Layers(LayerLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of all layers, and other ones for some."""

    names: dict[str, dict[str, float | str | None]] = {}

    def of(self, node: str, tensor: str) -> LayerLimits:
        """The limits of a layer: those of its tensor before its node's before everybody's."""
        return _overridden(self, LayerLimits, {**self.names.get(node, {}), **self.names.get(tensor, {})})


class LabelLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of the accuracy on labelled data."""

    max_top1_loss: Share | None = 0.01
    max_top5_loss: Share | None = 0.01
    min_top1: Share | None = None


class LintLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which findings of severity "error" are no miss: those of some rules, by name."""

    accept: list[str] = []


class MetricLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of one result of the user's metric."""

    min: float | None = None
    max: float | None = None


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All limits; the defaults are what ``torq check`` uses without a file."""

    outputs: Outputs = Outputs()
    layers: Layers = Layers()
    labels: LabelLimits = LabelLimits()
    lint: LintLimits = LintLimits()
    metric: dict[str, MetricLimits] = {}

    def check_names(self, outputs: Iterable[str], layers: Iterable[str], rules: Iterable[str]) -> None:
        """Every name in the file must be one that there is.

        Args:
            outputs: "output" and "output/part".
            layers: nodes and tensors.
            rules: of the lint.

        Raises:
            AccuracyError: it is not.
        """
        for where, given, known in (
            ("outputs.names", self.outputs.names, dict.fromkeys(outputs)),
            ("layers.names", self.layers.names, dict.fromkeys(layers)),
            ("lint.accept", self.lint.accept, dict.fromkeys(rules)),
        ):
            for name in given:
                if name not in known:
                    raise AccuracyError(
                        f"the thresholds name something that there is not: {name!r}",
                        where=where,
                        why=f"there are {len(known)} such names",
                        remedy=choose_from(name, known),
                    )


def load_thresholds(path: Path) -> Thresholds:
    """Read a thresholds file.

    Raises:
        AccuracyError: it cannot be read, is no YAML, or has an unknown key or a value out of range.
    """
    try:
        data = parse_yaml(read_text(path, _FILE))
        return thresholds_of(data if data is not None else {})
    except (ValueError, msgspec.ValidationError) as error:
        raise _FILE.refusal(path, str(error)) from error


def thresholds_of(data: Mapping[str, Any]) -> Thresholds:
    """Thresholds from plain data; numbers may be words, as YAML reads 1e-3.

    Raises:
        msgspec.ValidationError: an unknown key, a wrong type, or a value out of range.
    """
    found = typed(data, Thresholds, strict=False)
    given: list[msgspec.Struct] = [found.outputs, found.layers, found.labels, *found.metric.values()]
    for section, limits, kind in (("outputs", found.outputs, OutputLimits), ("layers", found.layers, LayerLimits)):
        given += [_named(f"{section}.names", name, own, kind) for name, own in limits.names.items()]
    for struct in given:
        _check_finite(struct)
    return found


def _named(place: str, name: str, own: Mapping[str, float | str | None], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The limits that a place of the file has for one name."""
    try:
        return msgspec.convert(own, kind, strict=False)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} of `$.{place}[{name!r}]`") from error


def _check_finite(limits: msgspec.Struct) -> None:
    for field in limits.__struct_fields__:
        value = getattr(limits, field)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError(f"{field} is {value}; a limit is a finite number")


def _overridden(limits: Any, kind: Any, own: Mapping[str, float | str | None]) -> Any:
    fields = {name: getattr(limits, name) for name in kind.__struct_fields__}
    return msgspec.convert({**fields, **own}, kind, strict=False)
