"""Images in another form than the model wants: channels in reverse order, normalised twice or not at all.

Each such form is undone in turn, and what fits best is reported: by labels where there are some, else by the
calibration data, channel by channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Feed, Subject

MEAN = np.array([0.485, 0.456, 0.406])
DEVIATION = np.array([0.229, 0.224, 0.225])
"""Of ImageNet's pixels in 0 .. 1, red, green, blue: the normalisation that most image models are trained with."""
CLEARLY = 1.3
"""A form is reported when it fits so many times better than the data as it is."""
MORE_RIGHT = 0.05
"""... or, with labels, when so many more of the samples are right."""

Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Form:
    """What may have happened to the data, and the change that undoes it on [..., channel] arrays."""

    mistake: str
    undo: Change


def _normalised(values: np.ndarray) -> np.ndarray:
    return (values - _of_channels(values, MEAN)) / _of_channels(values, DEVIATION)


def _plain(values: np.ndarray) -> np.ndarray:
    return values * _of_channels(values, DEVIATION) + _of_channels(values, MEAN)


def _of_channels(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    return of if values.shape[-1] == len(of) else np.full(values.shape[-1], of.mean())


_FORMS = (
    _Form("its channels are in reverse order (BGR for RGB)", lambda x: x[..., ::-1]),
    _Form("it is not divided by 255", lambda x: x / 255),
    _Form("it is divided by 255, which the model does not want", lambda x: x * 255),
    _Form("it is normalised twice (mean and deviation of ImageNet)", _plain),
    _Form("it is not normalised (mean and deviation of ImageNet)", _normalised),
    _Form("it is normalised twice (to -1 .. 1)", lambda x: x / 2 + 0.5),
    _Form("it is not normalised (to -1 .. 1)", lambda x: x * 2 - 1),
)


def input_form(subject: Subject) -> Iterator[LintFinding]:
    """The form that explains the evaluation data of every image input better than the data as it is."""
    if not subject.evaluation:
        return
    for value in subject.prepared.graph.input:
        axis = channel_axis(value)
        if axis is None:
            continue
        found = _by_labels(subject, value.name, axis) or _by_calibration(subject, value.name, axis)
        if found:
            yield LintFinding(
                "input-form",
                Severity.WARNING,
                f"input {value.name}",
                found,
                "prepare the samples as for training: the same channel order, scaling and normalisation, once",
            )


def channel_axis(value: onnx.ValueInfoProto) -> int | None:
    """The axis of an image input's one, three or four channels; None for other inputs."""
    kind = value.type.tensor_type
    shape = [dim.dim_value for dim in kind.shape.dim]
    if kind.elem_type != onnx.TensorProto.FLOAT or len(shape) != 4:
        return None
    return next(
        (axis for axis in (1, 3) if shape[axis] in (1, 3, 4) and min(shape[2 if axis == 1 else 1], 2) > 1), None
    )


def _changed(values: np.ndarray, axis: int, undo: Change) -> np.ndarray:
    return np.moveaxis(undo(np.moveaxis(values.astype(np.float64), axis, -1)), -1, axis).astype(np.float32)


def _by_labels(subject: Subject, name: str, axis: int) -> str:
    """Share of samples whose largest score is at their label, as they are and in every other form."""
    labels = subject.labels
    if labels is None or len(labels) != len(subject.evaluation):
        return ""

    def right(feeds: list[Mapping[str, np.ndarray]]) -> float:
        return float(np.mean(subject.answers(feeds) == labels.reshape(-1)))

    def form_of(undo: Change) -> list[Mapping[str, np.ndarray]]:
        return [{**feed, name: _changed(feed[name], axis, undo)} for feed in subject.evaluation]

    now = right(list(subject.evaluation))
    rates = [(right(form_of(form.undo)), form.mistake) for form in _FORMS]
    best, mistake = max(rates, key=lambda rate: rate[0])
    if best <= now + MORE_RIGHT:
        return ""
    return f"{best:.1%} of the samples are right, not {now:.1%}, if {mistake} and that is undone"


def _by_calibration(subject: Subject, name: str, axis: int) -> str:
    """Distance of every form's channels from those of the calibration data."""
    if not subject.calibration:
        return ""
    wanted = _statistics(subject.calibration, name, axis)
    data = _stacked(subject.evaluation, name, axis)
    now = _distance(wanted, data)
    distances = [(_distance(wanted, form.undo(data)), form.mistake) for form in _FORMS]
    best, mistake = min(distances, key=lambda distance: distance[0])
    noise = 3 / np.sqrt(len(subject.evaluation))
    if now <= noise or best * CLEARLY >= now or best > now - 0.1:
        return ""
    return (
        f"the evaluation data looks as if {mistake}: undone, its channels are {best:.2g} standard deviations from the"
        f" calibration data's, now {now:.2g}"
    )


def _stacked(feeds: Sequence[Feed], name: str, axis: int) -> np.ndarray:
    return np.concatenate(
        [np.moveaxis(feed[name].astype(np.float64), axis, -1).reshape(-1, feed[name].shape[axis]) for feed in feeds]
    )


def _statistics(feeds: Sequence[Feed], name: str, axis: int) -> tuple[np.ndarray, np.ndarray]:
    data = _stacked(feeds, name, axis)
    return data.mean(axis=0), np.maximum(data.std(axis=0), 1e-12)


def _distance(wanted: tuple[np.ndarray, np.ndarray], data: np.ndarray) -> float:
    """Mean over channels: shift of the mean in wanted deviations, plus the logarithm of the deviations' ratio."""
    mean, deviation = wanted
    shift = np.abs(data.mean(axis=0) - mean) / deviation
    spread = np.abs(np.log(np.maximum(data.std(axis=0), 1e-12) / deviation))
    return float(np.mean(shift + spread))
