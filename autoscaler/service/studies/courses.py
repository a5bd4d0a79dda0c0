"""Course of a study over time: its best value by cost, its rungs, and its instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autoscaler.domain.terms import TrialProgress, TrialRecord
from autoscaler.domain.trial import TrialEnding
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.series import grid, spending_series
from autoscaler.store.store import Store
from autoscaler.wire.study_messages import (
    BestValueView,
    RungView,
    StudyHistoryView,
    StudySummary,
    StudyView,
)

MOST_POINTS = 2000


@dataclass(frozen=True, slots=True)
class _HeardValue:
    """First value of a report or of the end of a trial in `job`, which arrived at `at_seconds`.

    A `trial` is the number of one that ended; None: the report of the job's first trial.
    """

    at_seconds: float
    job: str
    progress: float
    value: float
    trial: int | None = None


def study_summary(store: Store, view: StudyView) -> StudySummary:
    """Return the line of a study in a list. Its driver counts trials that share a job."""
    terms = view.terms
    ended = sum(record.stands.has_ended for record in view.trials)
    held = {instance.job for instance in store.instances.alive()}
    running = sum(
        record.stands.job in held and not record.stands.has_ended for record in view.trials
    )
    waiting = len(view.trials) - ended - running
    if terms is not None and terms.ended is not None and terms.under_way is not None:
        ended, running = terms.ended, max(terms.under_way - waiting, 0)
    return StudySummary(
        name=view.name,
        driver=view.driver,
        directions=() if terms is None else terms.directions,
        best=None if terms is None else terms.best,
        running=running,
        waiting=waiting,
        ended=ended,
        spent_usd=view.spent_usd,
        usd_per_hour=view.usd_per_hour,
        budget_usd=None if terms is None else terms.objective.most_usd,
        deadline_seconds=None if terms is None else terms.objective.deadline_seconds,
        trouble=view.trouble,
        stop=view.stop,
    )


def course_of_study(
    store: Store, view: StudyView, now_seconds: float, points: int
) -> StudyHistoryView:
    """Return the course of a study from its first instance until now, or until its last end."""
    jobs = {record.stands.job for record in view.trials}
    ledger = Ledger(store.ledger.of_jobs(jobs))
    stretches = [
        stretch
        for bill in ledger.bills
        for stretch in bill.stretches
        if stretch.opening.job in jobs
    ]
    opened = [stretch.opening.at_seconds for stretch in stretches]
    ends = [
        now_seconds if stretch.closing is None else stretch.closing.at_seconds
        for stretch in stretches
    ]
    heard = sorted(_heard(view.trials), key=lambda value: value.at_seconds)
    until_seconds = max((*ends, *(value.at_seconds for value in heard)), default=now_seconds)
    times = grid(min(opened, default=until_seconds), until_seconds, points)
    series = spending_series(ledger, jobs, times)
    improvements = tuple(_improvements(heard, _is_maximized(view)))
    moments = [improvement.at_seconds for improvement in improvements]
    costs = spending_series(ledger, jobs, moments).spent_usd
    counts = series.instances.values()
    return StudyHistoryView(
        study=view.name,
        times=times,
        instances=tuple(sum(count[index] for count in counts) for index in range(len(times))),
        usd_per_hour=series.usd_per_hour,
        spent_usd=series.spent_usd,
        best=tuple(
            BestValueView(
                value.at_seconds, usd, value.value, value.job, value.progress, value.trial
            )
            for value, usd in zip(improvements, costs, strict=True)
        ),
        job_usd={
            job: float(usd) for job, usd in ledger.by_job(now_seconds).items() if job in jobs
        },
        rungs=rungs_of(view.trials, None if view.terms is None else view.terms.full_work),
    )


def rungs_of(trials: Sequence[TrialRecord], full_work: float | None) -> tuple[RungView, ...]:
    """Return the progress at which trials are compared or were stopped, by rising progress."""
    stands = [record.stands for record in trials]
    levels = {trial.decided_at for trial in stands if trial.decided_at}
    if full_work and levels:
        levels.add(full_work)
        levels |= {
            trial.progress
            for trial in stands
            if trial.has_ended and 0 < trial.progress < full_work
        }
    rungs = sorted(level for level in levels if level is not None)
    following = [*rungs[1:], float("inf")][: len(rungs)]
    return tuple(
        RungView(
            progress=rung,
            reached=sum(trial.progress >= rung for trial in stands),
            waiting=sum(_waits_at(trial, rung) for trial in stands),
            stopped=sum(trial.has_ended and rung <= trial.progress < later for trial in stands),
        )
        for rung, later in zip(rungs, following, strict=True)
    )


def _waits_at(trial: TrialProgress, rung: float) -> bool:
    return trial.waits and not trial.has_ended and trial.decided_at == rung


def _is_maximized(view: StudyView) -> bool:
    return view.terms is not None and view.terms.directions[:1] == ("maximize",)


def _heard(trials: Iterable[TrialRecord]) -> Iterator[_HeardValue]:
    """Yield all reports of the trials of which the time is known, and all final values."""
    for record in trials:
        values = dict(record.stands.reports)
        for progress, at_seconds in record.heard:
            if progress in values:
                yield _HeardValue(at_seconds, record.stands.job, progress, values[progress])
        for at_seconds, result in record.results:
            if result.value is not None and result.ending is TrialEnding.COMPLETE:
                job, progress = record.stands.job, record.stands.progress
                yield _HeardValue(at_seconds, job, progress, result.value, result.number)


def _improvements(heard: Iterable[_HeardValue], is_maximized: bool) -> Iterator[_HeardValue]:
    """Yield the reports that were better than all before."""
    best: float | None = None
    for report in heard:
        is_better = best is None or (report.value > best if is_maximized else report.value < best)
        if is_better:
            best = report.value
            yield report
