"""What was measured of each job: step times, durations, noise, and the models fitted to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Select, inspect, select
from sqlalchemy.orm import Session

from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.report import MembershipPause, StepObservation, TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.store.database import Database
from autoscaler.store.jobs import job_row
from autoscaler.store.schema import DurationRow, ModelsRow, NoiseRow, ObservationRow

# A step time that was measured this much training in the same configuration ago counts half: a
# machine that changed its speed is believed to the half after three reports of ten seconds, and
# a single odd step of an ordinary length moves little.
HALF_LIFE_SECONDS = 30.0
MAXIMUM_CONFIGURATIONS = 200
# A duration counts at least this share of the mean, however many came before it.
_LEAST_SHARE = 0.1
# The noise scale changes with the order of magnitude of the progress, so points of the history
# stand this factor apart: fewer than 300 for a million-fold progress.
_NOISE_SPACING = 1.05


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of `count` durations, the last ones counting most."""

    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class NoisePoint:
    """The noise scale when the job had made that progress."""

    progress_examples: float
    noise: NoiseScale


class Measurements:
    """The measurements of the jobs of one store.

    What adds to them raises `UnknownJob` where there is no such job. A time that is negative or
    not finite, and a step time of 0 or of no step, is passed over: it would spoil the mean.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_observations(
        self, job: str, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        """Merge step times into the means of their configurations."""
        with self._database.write() as session:
            job_row(session, job)
            _add_observations(session, job, observations, now_seconds)

    def observations(self, job: str) -> tuple[StepObservation, ...]:
        """One observation for each configuration, the one that ran last first.

        `steps` is the faded weight: a step counts half when `HALF_LIFE_SECONDS` of training in
        the same configuration have followed it. The `MAXIMUM_CONFIGURATIONS` that ran last are
        kept.
        """
        with self._database.read() as session:
            kept = (row.to(StepObservation) for row in session.scalars(_latest_first(job)))
            return tuple(replace(each, steps=max(round(each.steps), 1)) for each in kept)

    def step_seconds(self, job: str) -> float | None:
        """The step time of the configuration that ran last; None before the first."""
        with self._database.read() as session:
            row = session.scalar(_latest_first(job).limit(1))
            return None if row is None else row.step_seconds

    def add_pause(self, job: str, pause: MembershipPause) -> None:
        """Merge what a change of membership cost into the mean of `pause_name(pause.kind)`."""
        self.add_duration(job, None, pause_name(pause.kind), pause.seconds)

    def add_duration(self, job: str, offer: str | None, what: str, seconds: float) -> None:
        """Merge a duration into the mean of its name; `offer` None where it belongs to none."""
        with self._database.write() as session:
            job_row(session, job)
            _add_duration(session, job, offer, what, seconds)

    def durations(self, job: str) -> Mapping[tuple[str | None, str], Mean]:
        """The means of a job's durations, by offer and name."""
        with self._database.read() as session:
            rows = session.scalars(select(DurationRow).where(DurationRow.job == job))
            return {
                (row.offer or None, row.what): Mean(row.mean_seconds, row.count) for row in rows
            }

    def noise_history(self, job: str) -> tuple[NoisePoint, ...]:
        """The noise scale over the progress of a job, at points a twentieth of it apart."""
        rows = select(NoiseRow).where(NoiseRow.job == job).order_by(NoiseRow.id)
        with self._database.read() as session:
            return tuple(row.to(NoisePoint) for row in session.scalars(rows))

    def save_models(self, job: str, models: Mapping[str, ThroughputModel]) -> None:
        """Keep the fitted models of a job, by kind of device, in place of those before."""
        with self._database.write() as session:
            job_row(session, job)
            session.merge(ModelsRow(job=job, models=models))

    def models(self, job: str) -> Mapping[str, ThroughputModel]:
        """The models that were saved last; none before that."""
        with self._database.read() as session:
            row = session.get(ModelsRow, job)
            return {} if row is None else row.models


def pause_name(kind: str) -> str:
    """The name among the durations of the pauses of that kind: join, drain or loss."""
    return f"{kind} pause"


def measure(session: Session, job: str, report: TrainingReport, now_seconds: float) -> None:
    """Take the measurements out of a report."""
    _add_observations(session, job, report.observations, now_seconds)
    for pause in report.pauses:
        _add_duration(session, job, None, pause_name(pause.kind), pause.seconds)
    if report.noise is not None:
        _add_noise(session, job, report.progress_examples, report.noise)


def _add_observations(
    session: Session, job: str, observations: Sequence[StepObservation], now_seconds: float
) -> None:
    for observation in observations:
        if _says_something(observation):
            _merge(session, job, observation, now_seconds)
    session.flush()
    for row in session.scalars(_latest_first(job).offset(MAXIMUM_CONFIGURATIONS)):
        session.delete(row)


def _says_something(new: StepObservation) -> bool:
    has_steps = new.steps > 0 and 0 < new.step_seconds < math.inf
    return has_steps and 0 <= new.sync_seconds < math.inf


def _merge(session: Session, job: str, new: StepObservation, now_seconds: float) -> None:
    configuration = {
        "job": job,
        "device_kind": new.device_kind,
        "instances": new.instances,
        "devices": new.devices,
        "device_batch": new.device_batch,
        "accumulation": new.accumulation,
    }
    row = session.get(ObservationRow, configuration)
    if row is None:
        row = ObservationRow(**configuration, steps=0.0, step_seconds=0.0, sync_seconds=0.0)
        session.add(row)
    trained_seconds = new.steps * new.step_seconds
    row.steps = row.steps * 0.5 ** (trained_seconds / HALF_LIFE_SECONDS) + new.steps
    share = new.steps / row.steps
    row.step_seconds += (new.step_seconds - row.step_seconds) * share
    row.sync_seconds += (new.sync_seconds - row.sync_seconds) * share
    row.updated_seconds = now_seconds


def _latest_first(job: str) -> Select[ObservationRow]:
    key = inspect(ObservationRow).primary_key
    rows = select(ObservationRow).where(ObservationRow.job == job)
    return rows.order_by(ObservationRow.updated_seconds.desc(), *key)


def _add_duration(
    session: Session, job: str, offer: str | None, what: str, seconds: float
) -> None:
    if not 0 <= seconds < math.inf:
        return
    row = session.get(DurationRow, (job, offer or "", what))
    if row is None:
        row = DurationRow(job=job, offer=offer or "", what=what, mean_seconds=0.0, count=0)
        session.add(row)
    row.count += 1
    row.mean_seconds += (seconds - row.mean_seconds) * max(1 / row.count, _LEAST_SHARE)


def _add_noise(session: Session, job: str, progress_examples: float, noise: NoiseScale) -> None:
    points = select(NoiseRow.progress_examples).where(NoiseRow.job == job)
    last = session.scalar(points.order_by(NoiseRow.id.desc()).limit(1))
    if progress_examples > (last or 0.0) * _NOISE_SPACING:
        session.add(NoiseRow(job=job, progress_examples=progress_examples, noise=noise))
