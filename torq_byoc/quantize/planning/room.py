"""What a plan reaches beyond its target is partly given for room: unseen data holds values larger than any seen.

Room costs every value some precision, and a value that is cut off may cost more than all of these together; which of
the two comes true, the calibration data cannot tell.
"""

from __future__ import annotations

from msgspec.structs import replace

from torq_byoc.quantize.planning.search import Trial
from torq_byoc.quantize.precision_plan import PrecisionPlan

ROOMS = (1.25, 1.125, 1.0625)
"""Factors for ranges, the largest first: each costs 8 bits about half as many decibels as the one before, from 1.9."""


def with_room(trial: Trial, plan: PrecisionPlan) -> PrecisionPlan:
    """A plan that meets the trial's target with wider ranges, as far as half of what it reaches beyond stays.

    A plan that misses its target stays as it is.
    """
    reached = trial.reached_by(plan)
    if not trial.target.met(reached):
        return plan
    halfway = trial.target.halfway_to(reached)
    wider = (replace(plan, room=room) for room in ROOMS)
    return next((each for each in wider if halfway.met(trial.reached_by(each))), plan)
