"""Deviations from measured step times: network cliffs, slow devices, drift."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import (
    MeasuredSteps,
    Placement,
    ProfiledStepTimes,
    StepTable,
)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Factor on the step times of some sizes of one kind of device.

    Attributes:
        kind: kind of device, as profiled.
        factor: factor on the duration of steps; below 1 they are faster.
        least_nodes: smallest number of nodes concerned.
        most_nodes: largest number of nodes concerned; None: no upper bound.
        from_seconds: begin since the job's submission.
    """

    kind: str
    factor: float
    least_nodes: int = 1
    most_nodes: int | None = None
    from_seconds: float = 0.0

    def concerns(self, kind: str, nodes: int) -> bool:
        """Return whether the factor applies to `nodes` nodes of a kind."""
        is_in_range = self.least_nodes <= nodes and (
            self.most_nodes is None or nodes <= self.most_nodes
        )
        return kind == self.kind and is_in_range


@dataclass(frozen=True)
class SlowedSteps(MeasuredSteps):
    """Measured step times of one kind of device, with slowdowns applied."""

    slowdowns: tuple[Slowdown, ...] = ()

    def _find(self, devices_on_nodes: Placement) -> StepTable:
        table = super()._find(devices_on_nodes)
        factor = 1.0
        for slowdown in self.slowdowns:
            if slowdown.concerns(self.kind, len(devices_on_nodes)):
                factor *= slowdown.factor
        if factor == 1.0:
            return table
        times = (
            ProfiledStepTimes(factor * time.step_seconds, factor * time.sync_seconds)
            for time in table.times
        )
        return StepTable(table.device_batches, tuple(times))


def slowed(profile: Profile, slowdowns: Sequence[Slowdown], at_seconds: float) -> Profile:
    """Return the profile with the slowdowns in force `at_seconds` after the submission."""
    in_force = tuple(slowdown for slowdown in slowdowns if slowdown.from_seconds <= at_seconds)
    if not in_force:
        return profile
    steps = {
        kind: SlowedSteps(
            measured.application,
            measured.kind,
            measured.placements,
            measured.sizes,
            slowdowns=in_force,
        )
        for kind, measured in profile.steps.items()
    }
    return replace(profile, steps=steps)


def change_seconds(slowdowns: Iterable[Slowdown]) -> tuple[float, ...]:
    """Return the increasing times after the submission at which step times change."""
    moments = {slowdown.from_seconds for slowdown in slowdowns}
    return tuple(sorted(moment for moment in moments if moment > 0))


class SlowedProfile:
    """Step times of one job over time."""

    def __init__(
        self, profile: Profile, slowdowns: Sequence[Slowdown], submitted_seconds: float
    ) -> None:
        moments = change_seconds(slowdowns)
        self._moments = [submitted_seconds + moment for moment in moments]
        self._profiles = [slowed(profile, slowdowns, moment) for moment in (0.0, *moments)]

    def changes(self, now_seconds: float) -> int:
        """Return the number of changes of step times so far."""
        return bisect_right(self._moments, now_seconds)

    def after(self, changes: int) -> Profile:
        """Return the profile in force after a number of changes."""
        return self._profiles[changes]

    def until(self, now_seconds: float, to_seconds: float) -> float:
        """Return the time until which step times stay unchanged, at most `to_seconds`."""
        changes = self.changes(now_seconds)
        return min((to_seconds, *self._moments[changes : changes + 1]))
