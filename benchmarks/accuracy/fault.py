"""What a fault is, and how stages come by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy.fault_subjects import Subject
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.stages import Stages


@dataclass(frozen=True, eq=False)
class Fault:
    """A single fault in one stage of a model.

    Attributes:
        kind: what is wrong, in the words of the list in ``faults``.
        stage: the class it belongs to.
        layers: nodes of the prepared model that may be named as the one at fault.
        where: the facts in a few words.
        stages: the stages with the fault, and all later ones made from the faulty one.
    """

    kind: str
    stage: Stage
    layers: tuple[str, ...]
    where: str
    stages: Stages


Injector = Callable[[Subject, np.random.Generator], Fault | None]
"""Makes a fault at random; None where the subject offers no place for it."""
