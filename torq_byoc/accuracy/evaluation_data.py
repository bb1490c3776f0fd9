"""Evaluation data, one sample in memory at a time where it comes as a folder of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from torq_byoc.errors import AccuracyError, CalibrationError
from torq_byoc.files import special_kind
from torq_byoc.quantize.data import labels_name, load_calibration, read_npz, samples

Arrays = Mapping[str, np.ndarray]


class EvaluationData:
    """Samples of a model that can be gone through again and again.

    Args:
        model: prepared: inputs with static shapes.
        source: arrays by input name whose first axis counts samples, an npz file of them, or a folder of one npz a
            sample.

    Attributes:
        count: number of samples.
        rows: how many rows of the first input array one sample takes.
        labels: the array "labels" ("class_labels" where the model has an input of that name), of all files together;
            None without.

    Raises:
        CalibrationError: the data cannot be read or does not fit the model.
        AccuracyError: there is no sample, or some files have labels and others none.
    """

    def __init__(self, model: onnx.ModelProto, source: str | Path | Arrays) -> None:
        self._model = model
        first = model.graph.input[0].type.tensor_type.shape.dim
        name = labels_name([value.name for value in model.graph.input])
        self.rows = first[0].dim_value if first else 1
        self._blocks = tuple(_blocks(source))
        labels: list[np.ndarray | None] = []
        self.count = 0
        for block in self._blocks:
            arrays = block()
            self.count += sum(1 for _ in samples(model, arrays, "evaluation"))
            labels.append(arrays.get(name))
        if not self.count:
            raise AccuracyError("there is nothing to check on", where="--data", remedy="give at least one sample")
        given = [np.atleast_1d(one) for one in labels if one is not None]
        if given and len(given) < len(labels):
            raise AccuracyError(
                "some files have labels and others none",
                where=name,
                why=f"{len(given)} of {len(labels)} files have them",
                remedy="label all samples or none",
            )
        self.labels = np.concatenate(given) if given else None

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """One feed a sample, shaped and typed as the model's inputs."""
        for block in self._blocks:
            yield from samples(self._model, block(), "evaluation")

    def spread(self, wanted: int) -> tuple[int, ...]:
        """Numbers of at most so many samples, evenly spread, the first among them."""
        if self.count <= wanted:
            return tuple(range(self.count))
        return tuple(sorted({index * self.count // wanted for index in range(wanted)}))


def _blocks(source: str | Path | Arrays) -> Iterator[Callable[[], Arrays]]:
    """What reads the data, part by part."""
    if isinstance(source, Mapping):
        yield lambda: source
        return
    path = Path(source)
    if not _is_folder(path):
        arrays = load_calibration(path)
        yield lambda: arrays
        return
    files = sorted(path.glob("*.npz"))
    if not files:
        raise CalibrationError(
            "the evaluation folder holds no npz file", where=str(path), remedy="put one npz a sample in it"
        )
    for file in files:
        yield lambda file=file: read_npz(file)  # type: ignore[misc]


def _is_folder(path: Path) -> bool:
    try:
        return special_kind(path) == "a folder"
    except (OSError, ValueError):
        return False  # whoever reads it says what is wrong
