"""Plot of `castor study status --plot`: the recorded history of a study."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from autoscaler.cli.pictures.canvas import require_plots
from autoscaler.cli.pictures.study import HoldingInterval, PicturedStudy, PicturedTrial, draw_study
from autoscaler.cli.study.facts import jobs_of
from autoscaler.cli.study.records import stays_of, view_of
from autoscaler.cli.study.run import open_recorded, require_optuna
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import NotFound
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import TrialRecord
from autoscaler.simulator.studies.driver import TrialReport
from autoscaler.simulator.studies.results import Level
from autoscaler.wire.study_messages import StudyView

_STATE_WORDS = {"fail": "failed"}
# An instance that is idle for at most this long between two trials counts as held throughout.
_HAND_OVER_SECONDS = 60.0


def draw_history(file: Path, plot: Path) -> None:
    """Draw the recorded history of a file's study to `plot`.

    Raises:
        CastorError: a file can't be used, or no controller here has run the study's trials.
    """
    require_plots(plot)
    now_seconds = SystemClock().now()
    spec, study = open_recorded(file)
    names = require_optuna().names_by_controller(study)
    view = view_of(spec.name, names)
    stays = () if view is None else stays_of(spec.name, names)
    if view is None or not stays:
        raise NotFound(f"{spec.name}: no controller here has a record of its trials' instances")
    draw_study(pictured(view, stays, study.trials, now_seconds, spec.directions[0]), plot)


def pictured(
    view: StudyView,
    stays: Sequence[StudyStay],
    trials: Sequence[Any],
    now_seconds: float,
    direction: str,
) -> PicturedStudy:
    """Return a study in the form that `draw_study` draws.

    Args:
        view: the study as its controller reports it.
        stays: intervals in which its trials held instances; at least one, the first starts first.
        trials: Optuna's trial records.
        now_seconds: current time, the end of stays that have not ended.
        direction: ``minimize`` or ``maximize``.
    """
    start = stays[0].from_seconds
    closed = [replace(stay, to_seconds=stay.to_seconds or now_seconds) for stay in stays]
    by_job: dict[str, list[StudyStay]] = defaultdict(list)
    for stay in closed:
        by_job[stay.job].append(stay)
    records = {record.stands.job: record for record in view.trials}
    shared = Counter(job for trial in trials for job in jobs_of(trial))
    drawn = [
        _pictured_trial(
            trial,
            [
                _JobOfTrial(records[job], by_job[job], shared[job] > 1)
                for job in jobs_of(trial)
                if job in records
            ],
            start,
        )
        for trial in trials
        if not records.keys().isdisjoint(jobs_of(trial))
    ]
    terms = view.terms
    deadline = None if terms is None else terms.objective.deadline_seconds
    return PicturedStudy(
        heading=f"{view.name}: {len(drawn)} trials",
        trials=tuple(drawn),
        held=tuple(_levels(closed, start)),
        finished_s=max(stay.to_seconds or start for stay in closed) - start,
        deadline_s=None if deadline is None else deadline - start,
        barriers_s=(),
        cost_usd=float(view.spent_usd or 0),
        maximize=direction == "maximize",
    )


@dataclass(frozen=True, slots=True)
class _JobOfTrial:
    """Job that ran a trial, and its instances.

    Attributes:
        record: the controller's record of the trial.
        stays: intervals in which the job held instances.
        is_shared: whether the job ran other trials, too.
    """

    record: TrialRecord
    stays: Sequence[StudyStay]
    is_shared: bool


def _pictured_trial(trial: Any, jobs: Sequence[_JobOfTrial], start: float) -> PicturedTrial:
    """Return a trial with the devices of all its jobs and its reports.

    A report made by two jobs counts at its earlier time. `start` is the plot's origin, seconds
    since the epoch.
    """
    end = trial.state.name.lower()
    spans: list[HoldingInterval] = []
    reports: dict[float, TrialReport] = {}
    for job in jobs:
        if job.is_shared:
            spans.extend(_spans_of_short_trial(trial, job.stays, start))
            continue
        ended = job.record.told_seconds if job.record.stands.has_ended else float("inf")
        for stay in job.stays:
            spans.extend(_spans(stay, ended, start))
        values = dict(job.record.stands.reports)
        for progress, at_seconds in job.record.heard:
            report = TrialReport(at_seconds - start, progress, values[progress])
            reports[progress] = min(
                report, reports.get(progress, report), key=lambda candidate: candidate.at_s
            )
    return PicturedTrial(
        number=trial.number,
        end=_STATE_WORDS.get(end, end),
        spans=tuple(sorted(spans, key=lambda span: span.from_s)),
        reports=tuple(reports[progress] for progress in sorted(reports)) or _result(trial, start),
    )


def _spans_of_short_trial(
    trial: Any, stays: Iterable[StudyStay], start: float
) -> Iterator[HoldingInterval]:
    """Yield the spans in which a trial held devices of a job that it shared with others."""
    began, ended = _seconds(trial.datetime_start), _seconds(trial.datetime_complete)
    for stay in stays:
        opened = max(stay.from_seconds, began or stay.from_seconds)
        closed = min(stay.to_seconds or float("inf"), ended or float("inf"))
        if opened < closed < float("inf"):
            yield HoldingInterval(opened - start, closed - start, stay.devices)


def _result(trial: Any, start: float) -> tuple[TrialReport, ...]:
    """Return a trial's result as its only report, at progress 0; empty if it has no result."""
    at_seconds = _seconds(trial.datetime_complete)
    if at_seconds is None or not trial.values:
        return ()
    return (TrialReport(at_seconds - start, 0.0, trial.values[0]),)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _spans(stay: StudyStay, ended: float, start: float) -> Iterator[HoldingInterval]:
    """Yield the span until the trial's end with its devices, and the idle span after."""
    opened, closed = stay.from_seconds, stay.to_seconds or ended
    if opened < ended:
        yield HoldingInterval(opened - start, min(closed, ended) - start, stay.devices)
    if closed > ended:
        yield HoldingInterval(max(opened, ended) - start, closed - start, 0)


def _levels(stays: Iterable[StudyStay], start: float) -> Iterator[Level]:
    """Yield number and total price of held instances, at each time at which they change.

    An instance that changes trials within 60 s counts as held in between.
    """
    changes: dict[float, list[tuple[int, float]]] = defaultdict(list)
    for opened, closed, price in _holdings(stays):
        changes[opened].append((1, price))
        changes[closed].append((-1, -price))
    count, price = 0, 0.0
    for at_seconds, changed in sorted(changes.items()):
        count += sum(added for added, _ in changed)
        price += sum(added_price for _, added_price in changed)
        yield Level(at_seconds - start, count, price)


def _holdings(stays: Iterable[StudyStay]) -> Iterator[tuple[float, float, float]]:
    """Yield start and end of each instance's holding (seconds), and its price (US dollars/h)."""
    by_instance: dict[str, list[StudyStay]] = defaultdict(list)
    for stay in stays:
        by_instance[stay.instance].append(stay)
    for own_stays in by_instance.values():
        own_stays.sort(key=lambda stay: stay.from_seconds)
        opened, closed = (
            own_stays[0].from_seconds,
            own_stays[0].to_seconds or own_stays[0].from_seconds,
        )
        for stay in own_stays[1:]:
            if stay.from_seconds > closed + _HAND_OVER_SECONDS:
                yield opened, closed, float(stay.usd_per_hour)
                opened = stay.from_seconds
            closed = max(closed, stay.to_seconds or closed)
        yield opened, closed, float(own_stays[0].usd_per_hour)
