"""`castor study status --plot`: what became of a study, from what was kept of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from autoscaler.cli.pictures.canvas import require_plots
from autoscaler.cli.pictures.study import PicturedStudy, PicturedTrial, Span, draw_study
from autoscaler.cli.study_facts import jobs_of
from autoscaler.cli.study_records import stays_of, view_of
from autoscaler.cli.studying import open_recorded, require_optuna
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import NotFound
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import TrialRecord
from autoscaler.simulator.study_driver import Report
from autoscaler.simulator.study_results import Level
from autoscaler.wire.study_messages import StudyView

_WORDS = {"fail": "failed"}
# An instance that is free for no longer than this between two trials was not released.
_HAND_OVER_SECONDS = 60.0


def draw_history(file: Path, plot: Path) -> None:
    """Draw the study of a file as far as it has come.

    Raises:
        CastorError: a file can't be used, or nothing is known of the study's trials here.
    """
    require_plots(plot)
    now_seconds = SystemClock().now()
    spec, study = open_recorded(file)
    names = require_optuna().names_of(study)
    view = view_of(spec.name, names)
    stays = () if view is None else stays_of(spec.name, names)
    if view is None or not stays:
        raise NotFound(f"{spec.name}: no controller knows what its trials held")
    draw_study(pictured(view, stays, study.trials, now_seconds, spec.directions[0]), plot)


def pictured(
    view: StudyView,
    stays: Sequence[StudyStay],
    trials: Sequence[Any],
    now_seconds: float,
    direction: str,
) -> PicturedStudy:
    """Return a study to be drawn; `trials` are Optuna's records."""
    start = stays[0].from_seconds
    closed = [replace(stay, to_seconds=stay.to_seconds or now_seconds) for stay in stays]
    by_job: dict[str, list[StudyStay]] = defaultdict(list)
    for stay in closed:
        by_job[stay.job].append(stay)
    records = {record.stands.job: record for record in view.trials}
    shared = Counter(job for trial in trials for job in jobs_of(trial))
    drawn = [
        _trial(
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
    """A job that ran a trial, and what it held; `is_shared` with other, short trials."""

    record: TrialRecord
    stays: Sequence[StudyStay]
    is_shared: bool


def _trial(trial: Any, jobs: Sequence[_JobOfTrial], start: float) -> PicturedTrial:
    """Return a trial with what all its jobs held; a report counts when it was heard first."""
    end = trial.state.name.lower()
    spans: list[Span] = []
    heard: dict[float, Report] = {}
    for job in jobs:
        if job.is_shared:
            spans.extend(_own_spans(trial, job.stays, start))
            continue
        ended = job.record.told_seconds if job.record.stands.has_ended else float("inf")
        for stay in job.stays:
            spans.extend(_spans(stay, ended, start))
        values = dict(job.record.stands.reports)
        for progress, at_seconds in job.record.heard:
            report = Report(at_seconds - start, progress, values[progress])
            heard[progress] = min(report, heard.get(progress, report), key=lambda one: one.at_s)
    return PicturedTrial(
        number=trial.number,
        end=_WORDS.get(end, end),
        spans=tuple(sorted(spans, key=lambda span: span.from_s)),
        reports=tuple(heard[progress] for progress in sorted(heard)) or _result(trial, start),
    )


def _own_spans(trial: Any, stays: Iterable[StudyStay], start: float) -> Iterator[Span]:
    """Yield what a short trial held, which ran between others under one job."""
    begun, ended = _seconds(trial.datetime_start), _seconds(trial.datetime_complete)
    for stay in stays:
        opened = max(stay.from_seconds, begun or stay.from_seconds)
        closed = min(stay.to_seconds or float("inf"), ended or float("inf"))
        if opened < closed < float("inf"):
            yield Span(opened - start, closed - start, stay.devices)


def _result(trial: Any, start: float) -> tuple[Report, ...]:
    """Return the result of a trial that reported nothing as its one report."""
    at_seconds = _seconds(trial.datetime_complete)
    if at_seconds is None or not trial.values:
        return ()
    return (Report(at_seconds - start, 0.0, trial.values[0]),)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _spans(stay: StudyStay, ended: float, start: float) -> Iterator[Span]:
    """What a trial holds after its end is idle: the next one may take it."""
    opened, closed = stay.from_seconds, stay.to_seconds or ended
    if opened < ended:
        yield Span(opened - start, min(closed, ended) - start, stay.devices)
    if closed > ended:
        yield Span(max(opened, ended) - start, closed - start, 0)


def _levels(stays: Iterable[StudyStay], start: float) -> Iterator[Level]:
    """Yield how many instances were held from when on, and what they cost together.

    An instance that one trial hands to another within seconds is held in between.
    """
    changes: dict[float, list[tuple[int, float]]] = defaultdict(list)
    for opened, closed, price in _holdings(stays):
        changes[opened].append((1, price))
        changes[closed].append((-1, -price))
    count, price = 0, 0.0
    for at_seconds, changed in sorted(changes.items()):
        count += sum(more for more, _ in changed)
        price += sum(more for _, more in changed)
        yield Level(at_seconds - start, count, price)


def _holdings(stays: Iterable[StudyStay]) -> Iterator[tuple[float, float, float]]:
    """Yield from when to when each instance was held, and its price in US dollars an hour."""
    by_instance: dict[str, list[StudyStay]] = defaultdict(list)
    for stay in stays:
        by_instance[stay.instance].append(stay)
    for held in by_instance.values():
        held.sort(key=lambda stay: stay.from_seconds)
        opened, closed = held[0].from_seconds, held[0].to_seconds or held[0].from_seconds
        for stay in held[1:]:
            if stay.from_seconds > closed + _HAND_OVER_SECONDS:
                yield opened, closed, float(stay.usd_per_hour)
                opened = stay.from_seconds
            closed = max(closed, stay.to_seconds or closed)
        yield opened, closed, float(held[0].usd_per_hour)
