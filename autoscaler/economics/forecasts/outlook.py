"""Outlook of a running job: finish and cost of its rest under an objective, and its sizes.

The outlook follows one path: the held allocation, the allocation that the objective chooses, and
the second stage of a deadline or budget. The controller will replan on the way, so the outlook
bounds what plans of today can promise. Orders of other jobs are not predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.remaining import knows_the_end
from autoscaler.economics.choice.demands import ChoiceReason, Demand, demand
from autoscaler.economics.choice.requirements import Requirement, remaining_constraints
from autoscaler.economics.choice.switching import SwitchContext, done_meanwhile, switches
from autoscaler.economics.forecasts.curves import room_of, supply_of_one
from autoscaler.economics.forecasts.forecast import Range, range_of
from autoscaler.economics.forecasts.spot import spot_field
from autoscaler.economics.pricing.starts import billed_start_seconds, start_seconds
from autoscaler.economics.supply.caches import PlanningCache
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, Supply
from autoscaler.goodput.throughput import FloatArray

# Choices that only complete what was ordered; the outlook follows what will be chosen then.
_PASSING = (ChoiceReason.UNDER_WAY, ChoiceReason.UNMEASURED, ChoiceReason.FIRST_START)


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """Allocation that a job is expected to hold from `from_seconds` after now; None: nothing."""

    from_seconds: float
    allocation: Allocation | None
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class JobOutlook:
    """Finish and cost of the rest of a job.

    Attributes:
        seconds: from now to the end.
        usd: cost from now on.
        sizes: expected allocations by time.
        value_of_time_usd_per_hour: value of time that the objective stands for.
        chance: share of draws that keep deadline and budget; None if there are none.
        note: message about deadline and budget that can't be kept or judged; None: `chance` has
            all there is to report.
        is_measured: whether step times of all allocations were measured.
    """

    seconds: Range
    usd: Range
    sizes: tuple[PlannedSize, ...]
    value_of_time_usd_per_hour: float
    chance: float | None
    note: str | None
    is_measured: bool


@dataclass(frozen=True, slots=True)
class NoOutlook:
    """Reason why no finish can be predicted."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Path:
    """Candidates held one after the other; `change` are useful examples until the second."""

    first: int
    then: int
    change: float


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """Seconds and US dollars of K draws, (K,), and the sizes at the mean times."""

    seconds: FloatArray
    usd: FloatArray
    sizes: tuple[PlannedSize, ...] = ()


def outlook(
    job: JobSnapshot, snapshot: Snapshot, cache: PlanningCache | None = None
) -> JobOutlook | NoOutlook:
    """Return the outlook of a job under its objective.

    Args:
        job: the job.
        snapshot: offers, and the limits that other jobs leave.
        cache: intermediate results of earlier calls; None for new ones.
    """
    if not knows_the_end(job):
        return NoOutlook("the script has not reported how much work the job has")
    if not job.models:
        return NoOutlook("no throughput model is fitted yet")
    supply = supply_of_one(job, snapshot, cache)
    choice = demand(job, supply, room_of(job, supply))
    if choice.requirement.stop is not None:
        return NoOutlook(f"the job stops: {choice.requirement.stop}")
    path = _path(choice)
    if path is None:
        return NoOutlook("no offer that can hold the job is free")
    draws = _with_reclaims(choice, snapshot, path, _draws(choice, supply, path))
    options = choice.at.candidates
    return JobOutlook(
        seconds=range_of(draws.seconds),
        usd=range_of(draws.usd),
        sizes=draws.sizes,
        value_of_time_usd_per_hour=choice.requirement.value_of_time * SECONDS_PER_HOUR,
        chance=_chance(job, supply, draws),
        note=_note(choice.requirement),
        is_measured=bool(options.measured[path.first] and options.measured[path.then]),
    )


def _note(needed: Requirement) -> str | None:
    """Return the note of a requirement; None if it repeats how often the ends are kept."""
    return None if needed.outlook.chance is not None else needed.note


def _path(choice: Demand) -> _Path | None:
    """Return the candidates that the job will hold; None if it may hold nothing."""
    options, stages = choice.at.candidates, choice.requirement.stages
    work = choice.job.remaining_examples or 0.0
    if stages is not None:
        is_single = stages.first == stages.then
        change = work if is_single else min(stages.change_examples, work)
        return _Path(stages.first, stages.then, change)
    target = choice.target
    if choice.why in _PASSING and options.allowed.any():
        mean_usd = choice.cost.mean(axis=0)
        target = int(np.argmin(np.where(options.allowed, mean_usd, np.inf)))
    target = options.held if target is None else target
    return None if target is None else _Path(target, target, work)


def _draws(choice: Demand, supply: Supply, path: _Path) -> _Draws:
    """Return the draws of the rest of the job without reclaims of single instances."""
    at, options = choice.at, choice.at.candidates
    work = choice.job.remaining_examples or 0.0
    price, per_example = options.usd_per_second, options.seconds_per_example
    entry = switches(at, options.held, np.array([path.first]))
    ready, pause = float(entry.ready_seconds[0]), float(entry.pause_seconds[0])
    waits = _seconds_until_trained(choice.job, supply)
    draws = len(options.goodput)
    done, usd = np.zeros(draws), np.full(draws, float(entry.boot_usd[0]))
    boot = np.full(draws, ready)
    trains = options.held is not None and bool(entry.trains_during_boot[0])
    if options.held is not None and trains:
        done = done_meanwhile(options.goodput[:, [options.held]], entry, work)[:, 0]
        boot = np.minimum(boot, done / options.goodput[:, options.held]) if ready else boot
        usd = usd + (boot + waits) * price[options.held]
    seconds = waits + boot + pause
    usd = usd + pause * price[path.first]
    first_work = np.clip(path.change - done, 0.0, work - done)
    first_seconds = first_work * per_example[:, path.first]
    change_seconds = seconds + first_seconds
    seconds, usd = change_seconds, usd + first_seconds * price[path.first]
    if path.then != path.first:
        second_seconds, second_usd = _second_stage(at, path, work - done - first_work)
        seconds, usd = seconds + second_seconds, usd + second_usd
    ready_seconds = float((waits + boot).mean())
    sizes = _sizes(choice, path, trains, (ready_seconds, float(change_seconds.mean())))
    return _Draws(seconds, usd, sizes)


def _second_stage(
    at: SwitchContext, path: _Path, work: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return seconds and US dollars of the change to the second candidate and its work, (K,)."""
    options = at.candidates
    change = switches(at, path.first, np.array([path.then]))
    training = work * options.seconds_per_example[:, path.then]
    price = float(options.usd_per_second[path.then])
    seconds = float(change.lost_seconds[0]) + training
    usd = float(change.boot_usd[0]) + (float(change.pause_seconds[0]) + training) * price
    return np.where(work > 0, seconds, 0.0), np.where(work > 0, usd, 0.0)


def _seconds_until_trained(job: JobSnapshot, supply: Supply) -> float:
    """Return the expected seconds until a job whose first instances start makes progress."""
    offer = None if job.held is None else supply.offer(job.held.offer)
    if offer is None or job.trained is not None or job.ordered_seconds is None:
        return 0.0
    expected = job.ordered_seconds + start_seconds(job.switching, offer)
    return max(expected - supply.as_of_seconds(job), 0.0)


def _sizes(
    choice: Demand, path: _Path, trains: bool, times: tuple[float, float]
) -> tuple[PlannedSize, ...]:
    """Return the allocations by time; `times` are those of the first and the second change."""
    options = choice.at.candidates
    ready_seconds, change_seconds = times
    planned: list[PlannedSize] = []

    def add(from_seconds: float, index: int | None) -> None:
        allocation = None if index is None else options.allocation(index)
        price = 0.0 if index is None else float(options.usd_per_second[index]) * SECONDS_PER_HOUR
        if not planned or planned[-1].allocation != allocation:
            planned.append(PlannedSize(from_seconds, allocation, price))

    if options.held != path.first and ready_seconds > 0:
        add(0.0, options.held if trains else None)
        add(ready_seconds, path.first)
    else:
        add(0.0, path.first)
    if path.then != path.first:
        add(change_seconds, path.then)
    return tuple(planned)


def _with_reclaims(choice: Demand, snapshot: Snapshot, path: _Path, draws: _Draws) -> _Draws:
    """Return draws with reclaims and waits for capacity where the path begins on spot.

    The first start of these draws is taken off again if the instances are held already.
    """
    job, options = choice.job, choice.at.candidates
    first, then = options.allocation(path.first), options.allocation(path.then)
    offer = options.offer_of(path.first)
    if offer.id not in snapshot.lives:
        return draws
    field = spot_field(job, snapshot, choice.requirement.value_of_time)
    runs = field.runs(first, then)
    if runs is None:
        return draws
    start = billed_start_seconds(job.switching, offer)
    is_held = job.held is not None and job.held.offer == offer.id
    saved = start if is_held else 0.0
    saved_usd = saved * offer.usd_per_second * first.instances
    return replace(
        draws,
        seconds=np.maximum(runs.seconds - saved, 0.0),
        usd=np.maximum(runs.usd - saved_usd, 0.0),
    )


def _chance(job: JobSnapshot, supply: Supply, draws: _Draws) -> float | None:
    """Return the share of draws that keep deadline and budget; None if there are none."""
    ends = remaining_constraints(job, supply)
    if ends.seconds is None and ends.usd is None:
        return None
    is_kept = np.ones(len(draws.seconds), dtype=np.bool_)
    if ends.seconds is not None:
        is_kept &= draws.seconds <= ends.seconds
    if ends.usd is not None:
        is_kept &= draws.usd <= ends.usd
    return float(is_kept.mean())
