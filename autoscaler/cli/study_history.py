"""`castor study status --plot`: what became of a study, from what was kept of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscaler.cli.pictures.canvas import require_plots
from autoscaler.cli.pictures.study import PicturedStudy, PicturedTrial, Span, draw_study
from autoscaler.cli.study_records import stays_of, view_of
from autoscaler.cli.studying import open_recorded, require_optuna, trial_row
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import NotFound
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import TrialRecord
from autoscaler.simulator.study_driver import Report
from autoscaler.simulator.study_results import Level
from autoscaler.wire.study_messages import StudyView

_WORDS = {"fail": "failed"}


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
    ends = {trial_row(trial)["job"]: trial for trial in study.trials}
    draw_study(pictured(view, stays, ends, now_seconds, spec.directions[0]), plot)


def pictured(
    view: StudyView,
    stays: Sequence[StudyStay],
    trials: dict[str, Any],
    now_seconds: float,
    direction: str,
) -> PicturedStudy:
    """A study to be drawn; `trials` are Optuna's records of them, by the jobs that ran them."""
    start = stays[0].from_seconds
    closed = [replace(stay, to_seconds=stay.to_seconds or now_seconds) for stay in stays]
    by_job: dict[str, list[StudyStay]] = defaultdict(list)
    for stay in closed:
        by_job[stay.job].append(stay)
    pictured = [
        _trial(record, trials[record.stands.job], by_job[record.stands.job], start)
        for record in view.trials
        if record.stands.job in trials
    ]
    terms = view.terms
    deadline = None if terms is None else terms.objective.deadline_seconds
    return PicturedStudy(
        heading=f"{view.name}: {len(pictured)} trials",
        trials=tuple(pictured),
        held=tuple(_levels(closed, start)),
        finished_s=max(stay.to_seconds or start for stay in closed) - start,
        deadline_s=None if deadline is None else deadline - start,
        barriers_s=(),
        cost_usd=float(view.spent_usd or 0),
        maximize=direction == "maximize",
    )


def _trial(
    record: TrialRecord, trial: Any, stays: Iterable[StudyStay], start: float
) -> PicturedTrial:
    end = trial.state.name.lower()
    ended = record.told_seconds if record.stands.has_ended else float("inf")
    values = dict(record.stands.reports)
    return PicturedTrial(
        number=trial.number,
        end=_WORDS.get(end, end),
        spans=tuple(span for stay in stays for span in _spans(stay, ended, start)),
        reports=tuple(Report(at - start, done, values[done]) for done, at in record.heard),
    )


def _spans(stay: StudyStay, ended: float, start: float) -> Iterator[Span]:
    """What a trial holds after its end is idle: the next one may take it."""
    opened, closed = stay.from_seconds, stay.to_seconds or ended
    if opened < ended:
        yield Span(opened - start, min(closed, ended) - start, stay.devices)
    if closed > ended:
        yield Span(max(opened, ended) - start, closed - start, 0)


def _levels(stays: Iterable[StudyStay], start: float) -> Iterator[Level]:
    """How many instances were held from when on, and what they cost together."""
    changes: dict[float, list[tuple[int, float]]] = defaultdict(list)
    for stay in stays:
        price = float(stay.usd_per_hour)
        changes[stay.from_seconds].append((1, price))
        changes[stay.to_seconds or start].append((-1, -price))
    count, price = 0, 0.0
    for at_seconds, changed in sorted(changes.items()):
        count += sum(more for more, _ in changed)
        price += sum(more for _, more in changed)
        yield Level(at_seconds - start, count, price)
