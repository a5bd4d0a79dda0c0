"""Forecast of a job whose batch changes: its epochs in each regime to come, and its end.

Source: Zheng et al., Shockwave (NSDI'23), section 5, the restatement rule. An ended regime has its
actual length. The remaining epochs are divided evenly over the regimes that have not ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaler.domain.snapshot import JobSnapshot, Regimes
from autoscaler.policies.pools.pool import Pool
from autoscaler.policies.published.alone import ran_seconds, usual_seconds_left


@dataclass(frozen=True, slots=True)
class RunPhase:
    """Part of the run to come: its fraction of the whole run, and its duration in seconds."""

    part: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """Time left of a job on the devices it asked for; `progress` is the fraction done."""

    progress: float
    phases: tuple[RunPhase, ...]

    @property
    def left_seconds(self) -> float:
        """Seconds left of the whole run."""
        return sum(phase.seconds for phase in self.phases)

    def progress_after(self, seconds: float) -> float:
        """Return the fraction done after running for so many seconds, at most 1."""
        done = self.progress
        for phase in self.phases:
            if seconds <= phase.seconds:
                return done + phase.part * (seconds / phase.seconds if phase.seconds else 1.0)
            done += phase.part
            seconds -= phase.seconds
        return 1.0


def forecast(job: JobSnapshot, pool: Pool) -> RuntimeForecast:
    """Return the forecast by the job's regimes; without regimes the present rate continues.

    A job of unknown length counts as half done.
    """
    regimes = job.truth.regimes if job.truth is not None else None
    if regimes is not None:
        return _forecast_of_regimes(regimes)
    left_seconds, elapsed_seconds = usual_seconds_left(job, pool), ran_seconds(job, pool)
    progress = elapsed_seconds / max(elapsed_seconds + left_seconds, 1e-9)
    return RuntimeForecast(progress, (RunPhase(1.0 - progress, left_seconds),))


def _forecast_of_regimes(regimes: Regimes) -> RuntimeForecast:
    """Return the forecast with the remaining epochs restated evenly."""
    phases = tuple(
        RunPhase(epochs / regimes.epochs, epochs * regime.epoch_seconds)
        for regime, epochs in zip(
            regimes.regimes[regimes.current :], epochs_left(regimes), strict=True
        )
        if epochs > 0
    )
    return RuntimeForecast(min(regimes.epochs_done / regimes.epochs, 1.0), phases)


def epochs_left(regimes: Regimes) -> Sequence[float]:
    """Return the expected epochs left of the current regime and of each later one.

    A regime that already had its even share counts as ending now, unless it is the last.
    """
    return tuple(_epochs_left(regimes))


def _epochs_left(regimes: Regimes) -> Iterator[float]:
    current = regimes.current
    later = len(regimes.regimes) - current - 1
    remaining = max(regimes.epochs - regimes.epochs_done, 0.0)
    done = regimes.regimes[current].epochs_done
    if later == 0:
        yield remaining
        return
    share = (remaining + done) / (later + 1)
    of_current = max(share - done, 0.0)
    yield of_current
    for _ in range(later):
        yield (remaining - of_current) / later
