"""Stalls: jobs that cost money and do not learn.

Pure: the controller passes what agents and training reports show, and gets a stall in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from autoscaler.domain.activity import Activity

LEAST_QUIET_SECONDS: Final = 120.0
"""Shortest time without a step that can be a stall."""
QUIET_STEPS: Final = 20.0
"""Median steps that fit into the time without a step before it is a stall."""
FIRST_STEP_SECONDS: Final = 1800.0
"""Time for a script's first step, which may compile or copy data, and until its pace is known."""
IDLE_SECONDS: Final = 900.0
"""Time for which devices do next to nothing, and no step is made, before it is a stall."""
_SKIPPED_STEPS: Final = 20
_SKIPPED_SHARE: Final = 0.95
_EXPLOSION: Final = 100.0
_EXPLODED_REPORTS: Final = 5


class StallKind(StrEnum):
    """Kind of a stall."""

    NO_STEP = "no step"
    HUNG_REPLICA = "hung replica"
    IDLE_DEVICES = "idle devices"
    NOT_FINITE = "not finite"
    EXPLODING = "loss exploding"


@dataclass(frozen=True, slots=True)
class Stall:
    """A stall, with its words for users."""

    kind: StallKind
    words: str


@dataclass(frozen=True, slots=True)
class ReplicaActivity:
    """An instance that runs the job's script. `activity` is None while it makes steps."""

    instance: str
    activity: Activity | None = None


@dataclass(frozen=True, slots=True)
class LossReport:
    """Step, skipped steps and loss of a training report; the loss is None if not reported."""

    step: int
    skipped_steps: int
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A job as its agents and reports show it.

    Attributes:
        replicas: the instances that run the script.
        settled_seconds: time since instances last started, left, changed or were in a declared
            phase.
        trainings: training reports of the last while, oldest first.
    """

    replicas: tuple[ReplicaActivity, ...]
    settled_seconds: float
    trainings: tuple[LossReport, ...] = ()


def find_stall(observation: Observation) -> Stall | None:
    """Return the stall that an observation shows; None for a job that learns or may yet learn.

    While instances start, leave, change or are in a declared phase, the others may have to wait
    for them: then the time without a step counts from the end of that.
    """
    return _quiet(observation) or _idle(observation) or _worthless(observation.trainings)


def quiet_limit_seconds(activity: Activity) -> float:
    """Return the longest time without a step that is no stall."""
    if activity.phase is not None and activity.phase_seconds is not None:
        return max(LEAST_QUIET_SECONDS, activity.quiet_seconds + activity.phase_seconds)
    if not activity.steps or activity.step_seconds is None:
        return FIRST_STEP_SECONDS
    return max(LEAST_QUIET_SECONDS, QUIET_STEPS * activity.step_seconds)


def _quiet(observation: Observation) -> Stall | None:
    """Return the stall of replicas that make no step for too long.

    A replica hangs if it neither makes steps nor waits for others. If all do so, as in a
    collective that the script calls itself, or all wait, none can be named.
    """
    quiet = [
        (replica.instance, replica.activity)
        for replica in observation.replicas
        if replica.activity is not None and replica.activity.steps is not None
    ]
    stuck = [
        (instance, activity)
        for instance, activity in quiet
        if _quiet_seconds(activity, observation) > quiet_limit_seconds(activity)
    ]
    busy = sum(not activity.waits_for_others for _, activity in quiet)
    if stuck and busy in (0, len(observation.replicas)):
        return Stall(StallKind.NO_STEP, _quiet_text(stuck[0][1]))
    hung = [(instance, activity) for instance, activity in stuck if not activity.waits_for_others]
    if not hung:
        return None
    names = ", ".join(instance for instance, _ in hung)
    text = f"{names} of {len(observation.replicas)}: {_quiet_text(hung[0][1])}"
    return Stall(StallKind.HUNG_REPLICA, text)


def _quiet_seconds(activity: Activity, observation: Observation) -> float:
    """Return the time without a step that the change of instances does not explain."""
    if activity.phase is not None:
        return activity.quiet_seconds
    return min(activity.quiet_seconds, observation.settled_seconds)


def _quiet_text(activity: Activity) -> str:
    seconds, limit_seconds = activity.quiet_seconds, quiet_limit_seconds(activity)
    if activity.phase is not None:
        return (
            f"no step for {seconds:.0f} s, in the phase {activity.phase!r} after its declared end"
        )
    if not activity.steps:
        return f"no first step for {seconds:.0f} s, more than {limit_seconds:.0f} s"
    pace = "" if activity.step_seconds is None else f"; a step took {activity.step_seconds:.3g} s"
    return f"no step for {seconds:.0f} s, more than {limit_seconds:.0f} s{pace}"


def _idle(observation: Observation) -> Stall | None:
    """Return the stall of devices that do nothing on every replica while no step is made."""
    activities = [replica.activity for replica in observation.replicas]
    idle_seconds = [
        activity.idle_seconds
        for activity in activities
        if activity is not None and activity.idle_seconds is not None and activity.phase is None
    ]
    if not activities or len(idle_seconds) < len(activities):
        return None
    least_seconds = min(*idle_seconds, observation.settled_seconds)
    if least_seconds < IDLE_SECONDS:
        return None
    return Stall(StallKind.IDLE_DEVICES, f"its devices have been idle for {least_seconds:.0f} s")


def _worthless(trainings: Sequence[LossReport]) -> Stall | None:
    """Return the stall of steps that change nothing or make the loss explode."""
    if len(trainings) < 2:
        return None
    first, last = trainings[0], trainings[-1]
    steps, skipped = last.step - first.step, last.skipped_steps - first.skipped_steps
    if steps >= _SKIPPED_STEPS and skipped >= _SKIPPED_SHARE * steps:
        text = f"{skipped} of the last {steps} steps were skipped: their loss was not finite"
        return Stall(StallKind.NOT_FINITE, text)
    losses = [training.loss for training in trainings if training.loss is not None]
    earlier, newest = losses[:-_EXPLODED_REPORTS], losses[-_EXPLODED_REPORTS:]
    if len(earlier) < _EXPLODED_REPORTS:
        return None
    usual = median(earlier)
    if usual > 0 and min(newest) > _EXPLOSION * usual:
        text = f"the loss is {newest[-1]:.3g}, more than {_EXPLOSION:.0f} times {usual:.3g}"
        return Stall(StallKind.EXPLODING, text)
    return None
