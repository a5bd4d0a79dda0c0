"""State of a study as it is planned for, built from a snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, StudySnapshot
from autoscaler.domain.terms import TrialProgress, TrialRecord
from autoscaler.economics.studies.candidate_sizes import permitted_sizes, trial_supply
from autoscaler.economics.studies.speeds.step_speeds import StepSpeeds, no_faster_than
from autoscaler.economics.studies.speeds.trial_speeds import (
    TrialSpeeds,
    trial_speeds,
    unmeasured_trial_seconds,
)
from autoscaler.economics.studies.supply import StudySupply
from autoscaler.economics.studies.trial_state import FreedInstances, TrialState
from autoscaler.economics.supply.supply import BoolArray, Supply
from autoscaler.goodput.throughput import FloatArray

# Fraction of a reporting interval by which an unreported trial is assumed to lag.
_LAG = 0.05
_NOTHING = 1e-9
# The speed of a size is reported within this time after the first few steps on it.
_REPORTED_WITHIN_SECONDS = 60.0
_STEPS_TO_REPORT = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class StudyState:
    """A study as it is planned for.

    Attributes:
        study: the study's snapshot.
        now_seconds: since the Unix epoch.
        supply: sizes that its trials may hold, within what other jobs leave of the limits.
        trials: trials that have not ended, the first submitted first.
        jobs: jobs of these trials, by their ids.
        fresh: units of work a second of a trial that has not begun, to plan with, (A,).
        later_fresh: the same before its speed is known, (K, A).
        first_work: work of a trial that has not begun to its first decision.
        full_work: work of a trial that is never pruned.
        usual_work: mean work of the trials that have ended.
        keeps_progress: whether trials resume from checkpoints on other instances.
        free: instances that the study holds and no trial does.
        is_blind: whether no trial of the study has been measured yet.
        scaling_is_known: whether the speed of some trial was measured on two sizes.
    """

    study: StudySnapshot
    now_seconds: float
    supply: StudySupply
    trials: tuple[TrialState, ...]
    jobs: Mapping[str, JobSnapshot]
    fresh: FloatArray
    later_fresh: FloatArray
    first_work: float
    usual_work: float
    keeps_progress: bool
    free: tuple[FreedInstances, ...]
    is_blind: bool = False
    scaling_is_known: bool = True


def study_state(
    study: StudySnapshot, jobs: Sequence[JobSnapshot], supply: Supply, taken: FloatArray
) -> StudyState | None:
    """Return the state of a study; None if nothing is offered to its trials.

    Args:
        study: the study, with the records of all its trials.
        jobs: jobs of its trials that have not ended, the first submitted first.
        supply: the offers and limits.
        taken: use of each limit by other jobs, (R,).
    """
    records = {record.stands.job: record for record in study.trials}
    steps = StepSpeeds(study, supply.offers)
    alive, example_work = steps.of_alive(
        [
            records.get(job.id) or TrialRecord(TrialProgress(job.id), supply.now_seconds)
            for job in jobs
        ],
        jobs,
    )
    ended = sorted(
        steps.of_ended([record for record in study.trials if record.stands.has_ended]),
        key=lambda record: (record.told_seconds, record.stands.job),
    )
    spacing, unit_seconds = _report_spacing(study.trials), _seconds_per_unit(study.trials)
    is_timed = any(job.id in study.steps for job in jobs)
    look_seconds = spacing * unit_seconds if unit_seconds and not is_timed else None
    sizes = trial_supply(jobs, supply, taken, look_seconds)
    if sizes is None:
        return None
    full_work = _full_work(study)
    deadline = None if study.terms.synchronous else study.terms.objective.deadline_seconds
    guess_seconds = unmeasured_trial_seconds(
        None if deadline is None else deadline - supply.now_seconds
    )
    batches = steps.batches(jobs)
    speeds = trial_speeds(alive, ended, sizes, full_work, batches, guess_seconds)
    common = _Common(
        sizes=sizes,
        supply=supply,
        speeds=speeds,
        spacing=spacing,
        full_work=full_work,
        keeps_progress=any(map(_keeps_progress, jobs, alive)),
        step_seconds=steps.step_seconds(),
        example_work=example_work,
    )
    bounds = permitted_sizes(replace(jobs[0], held=None), sizes.sizes, supply)
    worked = [record.stands.progress for record in ended]
    return StudyState(
        study=study,
        now_seconds=supply.now_seconds,
        supply=sizes,
        trials=tuple(
            _Trial(job, record, place, common).state()
            for place, (job, record) in enumerate(zip(jobs, alive, strict=True))
        ),
        jobs={job.id: job for job in jobs},
        fresh=speeds.fresh * bounds,
        later_fresh=speeds.unsettled_fresh * bounds,
        first_work=min(_first_work(study.trials) or full_work, full_work),
        usual_work=min(float(np.mean(worked)), full_work) if worked else full_work,
        keeps_progress=common.keeps_progress,
        free=tuple(
            FreedInstances(instance.offer, 1, instance.paid_seconds)
            for instance in study.free
            if instance.offer in sizes.place_of
        ),
        is_blind=unit_seconds is None,
        scaling_is_known=any(
            len({speed.size.devices for speed in record.speeds}) > 1 for record in (*alive, *ended)
        ),
    )


def _keeps_progress(job: JobSnapshot, record: TrialRecord) -> bool:
    """Return whether a trial resumes from a checkpoint."""
    return record.stands.pauses or job.progress_examples > 0


@dataclass(frozen=True, slots=True, eq=False)
class _Common:
    """Facts that the trials of a state share.

    Attributes:
        sizes: sizes of the study's trials.
        supply: the offers.
        speeds: speeds of all trials.
        spacing: work between two reports; 0: not known.
        full_work: work of a trial that is never pruned.
        keeps_progress: whether trials resume from checkpoints.
        step_seconds: longest steps of trials that time them, by job.
        example_work: progress that one example makes; None: not known.
    """

    sizes: StudySupply
    supply: Supply
    speeds: TrialSpeeds
    spacing: float
    full_work: float
    keeps_progress: bool
    step_seconds: Mapping[str, float]
    example_work: float | None


class _Trial:
    """One trial, from its job and its record."""

    def __init__(self, job: JobSnapshot, record: TrialRecord, place: int, common: _Common) -> None:
        sizes = common.sizes.sizes
        self._job, self._record, self._common = job, record, common
        self._place, self._now_seconds = place, common.supply.now_seconds
        self._held = sizes.index(job.held) if job.held is not None and job.held in sizes else None

    def state(self) -> TrialState:
        """Return the state of the trial."""
        job, common, progress = self._job, self._common, self._record.stands
        goodput, later, rate = self._goodput()
        bounds = permitted_sizes(job, common.sizes.sizes, common.supply)
        reached = progress.progress + self._unreported(rate)
        decided_at = min(progress.decided_at or common.full_work, common.full_work)
        least = _LAG * common.spacing if common.spacing else _NOTHING * common.full_work
        waits = progress.progress >= decided_at
        return TrialState(
            id=job.id,
            to_decision=0.0 if waits else max(decided_at - reached, least),
            goodput=goodput * bounds * self._allowed(),
            held=self._held,
            ready_seconds=self._ready_seconds(),
            paid_seconds=self._paid_seconds(),
            is_measured=bool(common.speeds.is_measured[self._place]),
            to_end=max(common.full_work - reached, least),
            later_goodput=later * bounds,
            progress=progress,
            can_pause=_keeps_progress(job, self._record),
            is_changing=job.trained != job.held,
        )

    def _goodput(self) -> tuple[FloatArray, FloatArray, float]:
        """Return goodput to plan with and as it is known, (K, A), and the rate on what it holds.

        A trial that has reported nothing on its size for longer than a unit should take is slow:
        only draws that are still possible count.
        """
        speeds, held = self._common.speeds, self._held
        goodput, later = speeds.goodput[:, self._place], speeds.unsettled[:, self._place]
        trains = held is not None and self._job.trained == self._job.held
        if held is None or not trains or self._record.trained is None:
            return goodput, later, 0.0
        if not self._is_measured_here():
            most = self._highest_rate()
            slower: FloatArray = (
                later * (no_faster_than(later[:, held], most) / later[:, held])[:, None]
            )
            goodput = slower if np.median(goodput[:, held]) > most else goodput
            later = slower
        return goodput, later, float(np.median(goodput[:, held]))

    def _is_measured_here(self) -> bool:
        return any(speed.size == self._job.held for speed in self._record.speeds)

    def _highest_rate(self) -> float:
        """Return the rate above which the trial would have reported since it trains here."""
        since = self._record.told_seconds
        if self._job.held != self._record.trained and self._job.ordered_seconds is not None:
            since = max(since, self._trains_since())
        seconds = self._now_seconds - since
        decided_at = self._record.stands.decided_at or self._common.full_work
        unit = self._common.spacing or max(decided_at - self._record.stands.progress, 0.0)
        return unit / seconds if unit > 0 and seconds > 0 else math.inf

    def _unreported(self, rate: float) -> float:
        """Return the work since the last report, at most that to the next one.

        It follows from the job's examples where the trial has changed since, or reported nothing.
        """
        job, reported = self._job, self._record.stands.progress
        work = rate * max(self._now_seconds - self._record.told_seconds, 0.0)
        at, example_work = job.as_of_seconds, self._common.example_work
        is_stale = not reported or self._record.trained != job.trained
        if example_work is not None and at is not None and is_stale:
            seen = max(job.progress_examples * example_work - reported, 0.0)
            work = seen + rate * max(self._now_seconds - at, 0.0)
        return min(work, (1.0 - _LAG) * self._common.spacing)

    def _allowed(self) -> BoolArray:
        """Return which sizes the trial may change to now, (A,), its bounds left aside.

        A change under way comes about first, and its speed is measured. A trial that keeps no
        progress only grows, on its own offer: elsewhere it would begin anew.
        """
        sizes, held = self._common.sizes, self._held
        if held is None:
            return np.ones(len(sizes.sizes), dtype=np.bool_)
        if self._job.trained != self._job.held or self._awaits_speed():
            stays: BoolArray = np.arange(len(sizes.sizes)) == held
            return stays
        if self._common.keeps_progress:
            return np.ones(len(sizes.sizes), dtype=np.bool_)
        same_offer: BoolArray = sizes.offer_of == sizes.offer_of[held]
        grows: BoolArray = same_offer & (sizes.instances >= sizes.instances[held])
        return grows

    def _awaits_speed(self) -> bool:
        """Return whether the trial has grown and its speed is to be reported soon.

        A size that took a boot to get is worth a wait of that length.
        """
        held, step_seconds = self._held, self._common.step_seconds.get(self._job.id)
        if held is None or step_seconds is None or self._is_measured_here():
            return False
        sizes = self._common.sizes
        if sizes.instances[held] <= max(self._job.instances.minimum, 1):
            return False
        patience = max(sizes.switching.look_seconds, float(sizes.boot_seconds[held]))
        patience += _REPORTED_WITHIN_SECONDS + _STEPS_TO_REPORT * step_seconds
        return self._now_seconds - self._trains_since() < patience

    def _trains_since(self) -> float:
        """Return the latest time at which the trial began on what it holds."""
        starts = 0.0 if self._held is None else self._common.sizes.order_seconds(self._held)
        return (self._job.ordered_seconds or self._now_seconds) + starts

    def _ready_seconds(self) -> float:
        """Return the seconds until the trial trains on what it holds."""
        job = self._job
        offer = None if job.held is None else self._common.supply.offer(job.held.offer)
        if offer is None or job.trained == job.held:
            return 0.0
        switching = self._common.sizes.switching
        starts = offer.boot_seconds + offer.fill_seconds + switching.start_seconds
        if job.ordered_seconds is None:
            return starts
        return max(starts - (self._now_seconds - job.ordered_seconds), _LAG * starts)

    def _paid_seconds(self) -> float:
        """Return the seconds for which what the trial holds is paid for in any case."""
        job = self._job
        offer = None if job.held is None else self._common.supply.offer(job.held.offer)
        if offer is None or job.ordered_seconds is None:
            return 0.0
        held_seconds = max(self._now_seconds - job.ordered_seconds, 0.0)
        return max(offer.minimum_billed_seconds - held_seconds, 0.0)


def _report_spacing(records: Sequence[TrialRecord]) -> float:
    """Return the median work between two reports; 0 if there are none."""
    steps = [
        later - before
        for record in records
        for before, later in pairwise([0.0, *sorted(at for at, _ in record.stands.reports)])
        if later > before
    ]
    return float(np.median(steps)) if steps else 0.0


def _seconds_per_unit(records: Sequence[TrialRecord]) -> float | None:
    seconds = [speed.seconds / speed.work for record in records for speed in record.speeds[:1]]
    return float(np.median(seconds)) if seconds else None


def _full_work(study: StudySnapshot) -> float:
    """Return the work of a trial that is never pruned: as stated, else the most in sight."""
    if study.terms.full_work is not None:
        return study.terms.full_work
    ahead = sum(rung.work for rung in study.terms.later)
    ends = [
        max(record.stands.progress, (record.stands.decided_at or 0.0) + ahead)
        for record in study.trials
    ]
    return max((end for end in ends if math.isfinite(end)), default=0.0) or 1.0


def _first_work(records: Sequence[TrialRecord]) -> float | None:
    """Return the work to the earliest decision that a trial has reported; None if none has."""
    decided = [record.stands.decided_at for record in records if not record.stands.has_ended]
    return min((work for work in decided if work is not None and work > 0), default=None)
