"""Small studies for tests of policies: trials as jobs, and the records of their progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.domain.plan import Decision
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, StudySnapshot, SwitchingCosts
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord, TrialSpeed
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.economics.cases import NOW, job, offer, snapshot

# An offer of $3.60 an hour, or a tenth of a cent a second, that boots in two minutes.
GPU = offer("gpu", "3.6", boot_seconds=120.0)
ONE = Allocation("gpu", 1, 1)
FULL = 100.0
UNIT_SECONDS = 36.0


def trial(
    number: int,
    progress: float = 0.0,
    held: Allocation | None = None,
    decided_at: float | None = None,
    unit_seconds: float | None = UNIT_SECONDS,
    most: int = 1,
    **changes: object,
) -> tuple[JobSnapshot, TrialRecord]:
    """Return a trial of an hour on one device, or of `unit_seconds` for a unit of progress."""
    name = f"trial-{number:02d}"
    plain = job(
        name,
        held,
        study="search",
        instances=InstanceBounds(1, most),
        submitted_seconds=NOW - 1000.0 + number,
        progress_examples=progress,
        ordered_seconds=None if held is None else NOW - 900.0,
        switching=SwitchingCosts(1.0, 3.0, {"gpu": 135.0}),
        remaining_examples=None,
    )
    reports = tuple((float(at), 1.0 / at + 0.01 * number) for at in range(1, int(progress) + 1))
    speeds: tuple[TrialSpeed, ...] = ()
    if progress > 1 and unit_seconds is not None:
        speeds = (TrialSpeed(held or ONE, progress, progress * unit_seconds),)
    stands = TrialProgress(name, progress, decided_at, {"width": float(1 + number % 4)}, reports)
    return replace(plain, **changes), TrialRecord(stands, NOW, held, speeds)  # type: ignore[arg-type]


def ended(number: int, progress: float, unit_seconds: float = UNIT_SECONDS) -> TrialRecord:
    """Return the record of a trial that has ended at this progress."""
    _, record = trial(number, progress, ONE, unit_seconds=unit_seconds)
    return replace(record, stands=replace(record.stands, has_ended=True))


def worth(usd_per_hour: float | None = None, **ends: object) -> Objective:
    """Return an objective with a value of time or none, `hours` to a deadline and a `budget`."""
    hours, budget = ends.pop("hours", None), ends.pop("budget", None)
    return Objective(
        Preference.BALANCED if usd_per_hour is None else Preference.VALUE_OF_TIME,
        usd_per_hour,
        None if hours is None else NOW + float(hours) * 3600.0,  # type: ignore[arg-type]
        None if budget is None else Decimal(str(budget)),
        **ends,  # type: ignore[arg-type]
    )


def moment(
    trials: Sequence[tuple[JobSnapshot, TrialRecord]],
    ended_trials: Sequence[TrialRecord] = (),
    *others: JobSnapshot,
    quota: int | None = None,
    offers: Sequence[Offer] = (GPU,),
    spent_usd: float = 0.0,
    **terms: object,
) -> Snapshot:
    """Return a snapshot of a study with these trials, ended ones and other jobs.

    `quota` limits the number of instances.
    """
    defaults = {"to_begin": 0, "full_work": FULL}
    study = StudySnapshot(
        "search",
        StudyTerms(**(defaults | terms)),  # type: ignore[arg-type]
        (*(record for _, record in trials), *ended_trials),
        spent_usd=spent_usd,
    )
    limits = () if quota is None else (Limit("quota", LimitUnit.INSTANCES, float(quota)),)
    jobs = [trial_job for trial_job, _ in trials]
    return snapshot(*jobs, *others, offers=offers, limits=limits, studies=(study,))


def planned(of: Snapshot) -> dict[str, Decision]:
    """Return the decisions by job."""
    return {decision.job: decision for decision in MarginalPolicy().plan(of).decisions}


def held_in(of: Snapshot) -> list[int]:
    """Return the number of instances planned for each job, in the order of ids."""
    decisions = planned(of)
    return [
        0 if target is None else target.instances
        for target in (decisions[name].target for name in sorted(decisions))
    ]
