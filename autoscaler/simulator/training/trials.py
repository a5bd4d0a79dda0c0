"""Training of one trial, which reports after epochs and waits for its study's decisions."""

from __future__ import annotations

from bisect import bisect_right

from autoscaler.domain.goodput import BatchBounds
from autoscaler.simulator.studies.study import SimulatedStudy, StudyTrial
from autoscaler.simulator.training.base import Member
from autoscaler.simulator.training.profiled import Training, TrainingSettings

_NEARLY = 1e-9


class TrialTraining(Training):
    """Running trial at a batch of its own, which instances only split.

    It trains until it has made `goal` reports, then waits for the next goal.
    """

    def __init__(
        self,
        trial: StudyTrial,
        study: SimulatedStudy,
        bounds: BatchBounds,
        settings: TrainingSettings,
        now_seconds: float,
    ) -> None:
        super().__init__(trial.profile, bounds, settings, now_seconds, bounds.initial)
        self.trial = trial
        self.goal = 0
        self.has_ended = False
        self._starts_until_seconds = now_seconds
        self._study = study

    @property
    def is_complete(self) -> bool:
        """Whether its study has ended the trial."""
        return self.has_ended

    @property
    def reports(self) -> int:
        """Number of reports so far."""
        return self._reports_at(self.progress_examples)

    @property
    def is_waiting(self) -> bool:
        """Whether the trial waits for its study's decision."""
        return self.reports >= self.goal

    def go_on_to(self, goal: int) -> None:
        """Train until `goal` reports are made."""
        self.goal = goal
        self._cached_stretches = (None, ())

    @property
    def is_starting(self) -> bool:
        """Whether the trial has members and has not made a step on any yet."""
        return bool(self.members) and self.now_seconds < self._starts_until_seconds

    def completes_before(self, seconds: float) -> float | None:
        """Return the next start or report without changes, if before `seconds`; else None."""
        if self.is_starting:
            return self._starts_until_seconds if self._starts_until_seconds < seconds else None
        earlier_reports = self.reports
        for stretch in self._stretches_until(seconds):
            if self._reports_at(stretch.progress_examples) > earlier_reports:
                return stretch.to_seconds
        return None

    def train_on(self, members: tuple[Member, ...]) -> None:
        """Set the instances at work; a start takes the study's start or hand-over seconds."""
        was_at_work, is_new = bool(self.members), members != self.members
        super().train_on(members)
        if not (is_new and members) or (was_at_work and not self.is_starting):
            return
        is_warm = all(member.is_warm for member in members)
        seconds = self._study.handover_seconds if is_warm else self._study.start_seconds
        if seconds is not None:
            self._held_up_seconds = self.now_seconds + seconds
        self._starts_until_seconds = self._held_up_seconds

    def _reports_at(self, progress: float) -> int:
        ends = self._profile.statistics.epoch_end_examples
        return bisect_right(ends, progress * (1 + _NEARLY))

    def _is_end(self, progress: float) -> bool:
        return self._reports_at(progress) >= self.goal
