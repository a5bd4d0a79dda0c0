"""What a job whose batch changes will do: its epochs in the rounds to come, and its end.

Source: Zheng et al., Shockwave (NSDI'23), section 5, the restatement rule: a regime that has ended
is as long as it was, and the epochs that are left are divided evenly over those that have not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaler.domain.snapshot import JobSnapshot, Regimes
from autoscaler.policies.alone import ran_seconds, usual_seconds_left
from autoscaler.policies.pool import Pool


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run, from 0 to 1, that is still to come, and how long it will take."""

    part: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is left of a job on the devices it asked for; `progress` is the part behind it."""

    progress: float
    phases: tuple[Phase, ...]

    @property
    def left_seconds(self) -> float:
        """Of the whole run."""
        return sum(phase.seconds for phase in self.phases)

    def progress_after(self, seconds: float) -> float:
        """The part behind it once it has run for so long."""
        done = self.progress
        for phase in self.phases:
            if seconds <= phase.seconds:
                return done + phase.part * (seconds / phase.seconds if phase.seconds else 1.0)
            done += phase.part
            seconds -= phase.seconds
        return 1.0


def forecast(job: JobSnapshot, pool: Pool) -> Forecast:
    """By its regimes; of a job that has none, that all goes on as now.

    One of which nothing is known is taken to be half done.
    """
    regimes = job.truth.regimes if job.truth is not None else None
    if regimes is not None:
        return _restated(regimes)
    left_seconds, ran = usual_seconds_left(job, pool), ran_seconds(job, pool)
    progress = ran / max(ran + left_seconds, 1e-9)
    return Forecast(progress, (Phase(1.0 - progress, left_seconds),))


def _restated(regimes: Regimes) -> Forecast:
    phases = tuple(
        Phase(epochs / regimes.epochs, epochs * regime.epoch_seconds)
        for regime, epochs in zip(
            regimes.regimes[regimes.current :], epochs_left(regimes), strict=True
        )
        if epochs > 0
    )
    return Forecast(min(regimes.epochs_done / regimes.epochs, 1.0), phases)


def epochs_left(regimes: Regimes) -> Sequence[float]:
    """Epochs still expected of the regime under way and of each after it.

    One that has had its even share already is taken to end now, unless it is the last.
    """
    return tuple(_epochs_left(regimes))


def _epochs_left(regimes: Regimes) -> Iterator[float]:
    current = regimes.current
    later = len(regimes.regimes) - current - 1
    left = max(regimes.epochs - regimes.epochs_done, 0.0)
    done = regimes.regimes[current].epochs_done
    if later == 0:
        yield left
        return
    share = (left + done) / (later + 1)
    of_current = max(share - done, 0.0)
    yield of_current
    for _ in range(later):
        yield (left - of_current) / later
