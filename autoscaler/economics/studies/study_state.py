"""A study at a state: what its trials have left to do, hold, may hold, and how fast they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, StudySnapshot
from autoscaler.domain.terms import TrialProgress, TrialRecord
from autoscaler.economics.studies.known_speeds import (
    TrialSpeeds,
    trial_speeds,
    unmeasured_trial_seconds,
)
from autoscaler.economics.studies.menu import permitted_sizes, trial_supply
from autoscaler.economics.studies.pace import Pace, no_faster_than
from autoscaler.economics.studies.rung import FreedInstances, StudySupply, TrialState
from autoscaler.economics.supply import BoolArray, Supply
from autoscaler.goodput.throughput import FloatArray

# A trial reports when it has come so far: until it does, it is short of that by this share.
_SHORT = 0.05
_NOTHING = 1e-9
# A job's steps are told of so soon after the first few.
_TELLS_WITHIN_SECONDS = 60.0
_STEPS_TO_TELL = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class StudyState:
    """A study as it is planned for.

    Attributes:
        study: as the snapshot has it.
        now_seconds: since the Unix epoch.
        supply: what its trials may hold, within what others leave of the limits.
        trials: those that have not ended, the first submitted first.
        jobs: their jobs, by their ids.
        fresh: units of work a second of one that has not begun, (A,).
        later_fresh: the same with all that is not known of it, (K, A).
        first_work: what one that has not begun does to its first decision.
        full_work: what one that goes all the way does.
        usual_work: work of a trial from its beginning to its end, as those that have ended did.
        keeps_progress: whether a trial that holds nothing for a while goes on where it was.
        free: what the study holds and no trial does.
        is_blind: nobody has measured yet how fast its trials are.
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
    full_work: float
    usual_work: float
    keeps_progress: bool
    free: tuple[FreedInstances, ...]
    is_blind: bool = False
    scaling_is_known: bool = True


def study_state(
    study: StudySnapshot, jobs: Sequence[JobSnapshot], supply: Supply, taken: FloatArray
) -> StudyState | None:
    """The state of a study; None where nothing is offered to its trials.

    Args:
        study: with the records of all its trials.
        jobs: its trials that are alive and have not ended, the first submitted first.
        supply: what is offered.
        taken: what others use of each limit, (R,).
    """
    records = {one.stands.job: one for one in study.trials}
    pace = Pace(study, supply.offers)
    alive, example_work = pace.of_those_alive(
        [records.get(job.id) or _unheard(job, supply.now_seconds) for job in jobs], jobs
    )
    ended = sorted(
        pace.of_those_ended([one for one in study.trials if one.stands.has_ended]),
        key=lambda one: (one.told_seconds, one.stands.job),
    )
    spacing = _spacing(study.trials)
    per_unit = _seconds_per_unit(study.trials)
    is_timed = any(job.id in study.steps for job in jobs)
    look_seconds = spacing * per_unit if per_unit and not is_timed else None
    menu = trial_supply(jobs, supply, taken, look_seconds)
    if menu is None:
        return None
    full_work = _full_work(study)
    deadline = None if study.terms.synchronous else study.terms.objective.deadline_seconds
    until_deadline = None if deadline is None else deadline - supply.now_seconds
    unmeasured_seconds = unmeasured_trial_seconds(until_deadline)
    speeds = trial_speeds(alive, ended, menu, full_work, pace.batches(jobs), unmeasured_seconds)
    keeps_progress = any(
        job.progress_examples > 0 or record.stands.pauses
        for job, record in zip(jobs, alive, strict=True)
    )
    steps = pace.step_seconds(), example_work
    around = _Around(menu, supply, speeds, spacing, full_work, keeps_progress, *steps)
    trials = tuple(
        _trial(place, job, record, around)
        for place, (job, record) in enumerate(zip(jobs, alive, strict=True))
    )
    worked = [record.stands.progress for record in ended]
    bounds = permitted_sizes(replace(jobs[0], held=None), menu.sizes, supply)
    return StudyState(
        study=study,
        now_seconds=supply.now_seconds,
        supply=menu,
        trials=trials,
        jobs={job.id: job for job in jobs},
        fresh=speeds.fresh * bounds,
        later_fresh=speeds.unsettled_fresh * bounds,
        first_work=min(_first_work(study.trials) or full_work, full_work),
        full_work=full_work,
        usual_work=min(float(np.mean(worked)), full_work) if worked else full_work,
        keeps_progress=keeps_progress,
        free=_free(study, menu),
        is_blind=per_unit is None,
        scaling_is_known=any(
            len({speed.size.devices for speed in record.speeds}) > 1 for record in (*alive, *ended)
        ),
    )


def _free(study: StudySnapshot, menu: StudySupply) -> tuple[FreedInstances, ...]:
    return tuple(
        FreedInstances(one.offer, 1, one.paid_seconds)
        for one in study.free
        if one.offer in menu.place_of
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    """What the trials of a state have in common.

    `spacing` is work between two reports, `step_seconds` the longest steps of those that time
    them, `example_work` the progress that an example is; None: not known.
    """

    menu: StudySupply
    supply: Supply
    speeds: TrialSpeeds
    spacing: float
    full_work: float
    keeps_progress: bool
    step_seconds: Mapping[str, float]
    example_work: float | None


def _trial(place: int, job: JobSnapshot, record: TrialRecord, around: _Around) -> TrialState:
    menu, stands = around.menu, record.stands
    held = menu.sizes.index(job.held) if job.held in menu.sizes else None
    bounds = permitted_sizes(job, menu.sizes, around.supply)
    goodput, later = around.speeds.goodput[:, place], around.speeds.unsettled[:, place]
    rate = 0.0
    if held is not None and job.trained == job.held and record.trained is not None:
        if all(speed.size != job.held for speed in record.speeds):
            goodput, later = _as_silent(goodput, later, held, _fastest(job, record, around))
        rate = float(np.median(goodput[:, held]))
    goodput, later = goodput * bounds, later * bounds
    reached = stands.progress + _since(job, record, rate, around)
    decided_at = min(stands.decided_at or around.full_work, around.full_work)
    least = _SHORT * around.spacing if around.spacing else _NOTHING * around.full_work
    to_decision = max(decided_at - reached, least) if stands.progress < decided_at else 0.0
    offer = None if job.held is None else around.supply.offer(job.held.offer)
    return TrialState(
        id=job.id,
        to_decision=to_decision,
        goodput=goodput * _allowed(job, held, record, around),
        held=held,
        ready_seconds=0.0 if offer is None else _ready_seconds(job, offer, around),
        paid_seconds=0.0 if offer is None else _paid_seconds(job, offer, around.supply),
        is_measured=bool(around.speeds.is_measured[place]),
        to_end=max(around.full_work - reached, least),
        later_goodput=later,
        progress=stands,
        can_pause=stands.pauses or job.progress_examples > 0,
        ordered_seconds=job.ordered_seconds,
        is_changing=job.trained != job.held,
    )


def _allowed(
    job: JobSnapshot, held: int | None, record: TrialRecord, around: _Around
) -> BoolArray:
    """Which sizes it may go to now, (A,), its bounds left aside.

    A change that was decided is left to come about, and until its speed is known. What keeps no
    progress goes nowhere else: there it would begin anew.
    """
    sizes = np.arange(len(around.menu.sizes))
    if held is None:
        return np.ones(len(sizes), dtype=np.bool_)
    stays: BoolArray = sizes == held
    if job.trained != job.held or _is_looked_at(job, held, record, around):
        return stays
    if around.keeps_progress:
        return np.ones(len(sizes), dtype=np.bool_)
    offers = around.menu.offer_of
    grows = around.menu.instances >= around.menu.instances[held]
    same: BoolArray = (offers == offers[held]) & grows
    return same


def _is_looked_at(job: JobSnapshot, held: int, record: TrialRecord, around: _Around) -> bool:
    """Whether it has grown, and its speed on what it holds is to be known soon."""
    grown = around.menu.instances[held] > max(job.instances.minimum, 1)
    takes = around.step_seconds.get(job.id)
    if not grown or takes is None or any(one.size == job.held for one in record.speeds):
        return False
    seconds = around.supply.now_seconds - _trains_since(job, held, around)
    told = _TELLS_WITHIN_SECONDS + _STEPS_TO_TELL * takes
    # What took a boot to get is worth as long a wait: it may have held training up, too.
    return seconds < told + max(around.menu.switching.look_seconds, _boots(held, around))


def _boots(held: int, around: _Around) -> float:
    return float(around.menu.boot_seconds[held])


def _trains_since(job: JobSnapshot, held: int, around: _Around) -> float:
    """When it trained on what it holds, at the latest."""
    starts = _boots(held, around) + around.menu.switching.start_seconds
    return (job.ordered_seconds or around.supply.now_seconds) + starts


def _fastest(job: JobSnapshot, record: TrialRecord, around: _Around) -> float:
    """No more units a second than that: else it would have told of one since it trains on this."""
    since = record.told_seconds
    if job.held != record.trained and job.held is not None and job.ordered_seconds is not None:
        since = max(since, _trains_since(job, around.menu.sizes.index(job.held), around))
    seconds = around.supply.now_seconds - since
    decided_at = record.stands.decided_at or around.full_work
    unit = around.spacing or max(decided_at - record.stands.progress, 0.0)
    return unit / seconds if unit > 0 and seconds > 0 else math.inf


def _as_silent(
    goodput: FloatArray, later: FloatArray, held: int, most: float
) -> tuple[FloatArray, FloatArray]:
    """Rates of a trial of which is known that it makes at most that on what it holds, (K, A).

    If that is less than what is planned by, all that is still possible counts.
    """
    scale = no_faster_than(later[:, held], most) / later[:, held]
    slower: FloatArray = later * scale[:, None]
    return (slower if np.median(goodput[:, held]) > most else goodput), slower


def _since(job: JobSnapshot, record: TrialRecord, rate: float, around: _Around) -> float:
    """What it has done since it was told of: no more than it would have told of.

    By the examples that it has gone through, if it has changed since, or has told of nothing.
    """
    told, now_seconds = record.stands.progress, around.supply.now_seconds
    done = rate * max(now_seconds - record.told_seconds, 0.0)
    at, work = job.as_of_seconds, around.example_work
    if work is not None and at is not None and (not told or record.trained != job.trained):
        seen = job.progress_examples * work - told
        done = max(seen, 0.0) + rate * max(now_seconds - at, 0.0)
    return min(done, (1.0 - _SHORT) * around.spacing)


def _ready_seconds(job: JobSnapshot, offer: Offer, around: _Around) -> float:
    if job.held is not None and job.trained == job.held:
        return 0.0
    starts = offer.boot_seconds + offer.fill_seconds + around.menu.switching.start_seconds
    if job.ordered_seconds is None:
        return starts
    return max(starts - (around.supply.now_seconds - job.ordered_seconds), _SHORT * starts)


def _paid_seconds(job: JobSnapshot, offer: Offer, supply: Supply) -> float:
    if job.ordered_seconds is None:
        return 0.0
    held_seconds = supply.now_seconds - job.ordered_seconds
    return max(offer.minimum_billed_seconds - max(held_seconds, 0.0), 0.0)


def _unheard(job: JobSnapshot, now_seconds: float) -> TrialRecord:
    return TrialRecord(TrialProgress(job.id), now_seconds)


def _spacing(records: Sequence[TrialRecord]) -> float:
    """Work between two reports, as it usually is; 0 while none was told."""
    steps = [
        later - before
        for record in records
        for before, later in pairwise([0.0, *sorted(at for at, _ in record.stands.reports)])
        if later > before
    ]
    return float(np.median(steps)) if steps else 0.0


def _seconds_per_unit(records: Sequence[TrialRecord]) -> float | None:
    found = [speed.seconds / speed.work for record in records for speed in record.speeds[:1]]
    return float(np.median(found)) if found else None


def _full_work(study: StudySnapshot) -> float:
    """What a trial does that goes all the way: as stated, else as far as anyone is to come."""
    if study.terms.full_work is not None:
        return study.terms.full_work
    ahead = sum(rung.work for rung in study.terms.later)
    known = [
        max(one.stands.progress, (one.stands.decided_at or 0.0) + ahead) for one in study.trials
    ]
    return max([each for each in known if math.isfinite(each)], default=0.0) or 1.0


def _first_work(records: Sequence[TrialRecord]) -> float | None:
    """The first decision on a trial: the earliest that was told of."""
    stands = [record.stands for record in records if not record.stands.has_ended]
    decided = [one.decided_at for one in stands if one.decided_at is not None]
    return min((at for at in decided if at > 0), default=None)
