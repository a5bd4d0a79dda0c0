"""Strategies for random jobs and supplies, small enough for exhaustive search."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.domain.snapshot import (
    FreeInstance,
    JobSnapshot,
    Snapshot,
    StudySnapshot,
    SwitchingCosts,
    ThroughputModel,
)
from autoscaler.domain.terms import (
    LaterRung,
    StudyTerms,
    TrialProgress,
    TrialRecord,
    TrialSpeed,
)
from tests.economics.cases import ALL, NOW, job, model, offer, valued

KINDS = ("core", "card")
# Prices of bytes to and from storage: in the storage's own network, and from another.
_NETWORKS = st.sampled_from(
    [
        {},
        {},
        {
            "network": "far",
            "upload_usd_per_gb": Decimal("0.12"),
            "download_usd_per_gb": Decimal("0.09"),
        },
    ]
)


@st.composite
def parameters(draw: st.DrawFn) -> ThroughputParameters:
    """Draw throughput parameters from perfect scaling to none."""
    compute = draw(st.floats(0.001, 0.02))
    sync = draw(st.floats(0.0, 0.5))
    growth = draw(st.floats(0.0, 0.3))
    gamma = draw(st.floats(1.0, 3.0))
    return ThroughputParameters(0.01, compute, sync, growth, sync / 2, growth / 2, gamma)


@st.composite
def offers(draw: st.DrawFn, is_simple: bool = False) -> tuple[Offer, ...]:
    count = draw(st.integers(1, 3))
    return tuple(
        offer(
            f"offer-{index}",
            str(Decimal(draw(st.integers(2, 60))) / 100),
            devices=1 if is_simple else draw(st.integers(1, 2)),
            kind=draw(st.sampled_from(KINDS)),
            boot_seconds=0.0 if is_simple else draw(st.floats(0.0, 60.0)),
            reclaims_per_hour=draw(st.sampled_from([0.0, 0.0, 0.5])),
            **({} if is_simple else draw(_NETWORKS)),
        )
        for index in range(count)
    )


def sizes_of(permitted_offers: tuple[Offer, ...], bounds: InstanceBounds) -> list[Allocation]:
    """Return every allocation within the bounds, by plain loops."""
    allocations = []
    for permitted_offer in permitted_offers:
        for instances in range(bounds.minimum, bounds.maximum + 1):
            fewer = range(1, permitted_offer.devices) if instances == 1 else ()
            for used in (*fewer, permitted_offer.devices):
                allocations.append(Allocation(permitted_offer.id, instances, used))
    return allocations


@st.composite
def models(
    draw: st.DrawFn, draws: int = 1, all_measured: bool = True
) -> dict[str, ThroughputModel]:
    models_by_kind = {}
    for kind in KINDS:
        measured = ALL if all_measured else draw(st.frozensets(st.sampled_from(sorted(ALL))))
        spread = draw(st.floats(0.05, 0.6)) if draws > 1 else 0.0
        models_by_kind[kind] = model(draw(parameters()), kind, measured, draws, spread)
    return models_by_kind


@st.composite
def snapshots(
    draw: st.DrawFn,
    jobs: int = 1,
    draws: int = 1,
    all_measured: bool = True,
    is_limited: bool = False,
    is_simple: bool = False,
    has_ends: bool = False,
    least_examples: float = 1.0,
) -> Snapshot:
    """Draw jobs that hold nothing or something, with equal kinds of training and allocations.

    `is_simple`: a change costs a pause and nothing else. `has_ends`: some jobs have a deadline or
    a budget. Every job has at least `least_examples` left.
    """
    supply = draw(offers(is_simple))
    drawn_jobs = []
    for index in range(draw(st.integers(1, jobs))):
        drawn_job = _job(draw, f"job-{index}", supply, draws, all_measured)
        assert drawn_job.remaining_examples is not None
        drawn_job = replace(
            drawn_job, remaining_examples=drawn_job.remaining_examples + least_examples
        )
        if is_simple:
            drawn_job = replace(
                drawn_job, switching=replace(drawn_job.switching, restore_seconds=0.0)
            )
        if has_ends:
            drawn_job = replace(drawn_job, objective=draw(_with_ends(drawn_job.objective)))
        drawn_jobs.append(drawn_job)
    limits = _limits(draw, supply) if is_limited else ()
    return Snapshot(NOW, supply, limits, tuple(drawn_jobs))


def _job(
    draw: st.DrawFn, name: str, supply: tuple[Offer, ...], draws: int, all_measured: bool
) -> JobSnapshot:
    minimum = draw(st.sampled_from([1, 1, 1, 2]))
    bounds = InstanceBounds(minimum, minimum + draw(st.integers(0, 3)))
    held = draw(st.none() | st.sampled_from(sizes_of(supply, bounds)))
    return job(
        name,
        held,
        draw(models(draws, all_measured)),
        instances=bounds,
        objective=valued(draw(st.floats(0.0, 3.0))),
        remaining_examples=draw(st.floats(0.0, 1e6)),
        spent_usd=0.0 if held is None else 0.5,
        switching=SwitchingCosts(
            pause_seconds=draw(st.floats(0.0, 5.0)),
            restore_seconds=draw(st.floats(0.0, 30.0)),
            checkpoint_bytes=draw(st.sampled_from([0.0, 1e6, 3e9])),
            carry_seconds=draw(st.sampled_from([0.0, 60.0])),
        ),
        waited_seconds=draw(st.floats(0.0, 7200.0)),
    )


@st.composite
def searching(draw: st.DrawFn, moments: st.SearchStrategy[Snapshot]) -> Snapshot:
    """Draw the same snapshots with some of the jobs as trials of one of two studies."""
    moment = draw(moments)
    homes = {member.id: draw(st.sampled_from([None, "first", "second"])) for member in moment.jobs}
    started = draw(st.booleans())
    members = tuple(
        replace(member, study=homes[member.id], progress_examples=100.0 * started)
        for member in moment.jobs
    )
    studies = []
    for name in sorted({home for home in homes.values() if home is not None}):
        study_members = [member for member in members if member.study == name]
        gone = draw(st.integers(0, 2))
        records = [draw(_record(member.id, member.held)) for member in study_members]
        records += [
            draw(
                _record(
                    f"{name}-gone-{index}",
                    draw(st.sampled_from(study_members)).held,
                    has_ended=True,
                )
            )
            for index in range(gone)
        ]
        free = draw(
            st.lists(st.sampled_from([some_offer.id for some_offer in moment.offers]), max_size=1)
        )
        studies.append(
            StudySnapshot(
                name,
                draw(_terms()),
                tuple(records),
                tuple(FreeInstance(offer, draw(st.sampled_from([0.0, 600.0]))) for offer in free),
                spent_usd=0.5,
            )
        )
    return replace(moment, jobs=members, studies=tuple(studies))


@st.composite
def _terms(draw: st.DrawFn) -> StudyTerms:
    synchronous = draw(st.booleans())
    return StudyTerms(
        objective=draw(_with_ends(valued(draw(st.floats(0.0, 3.0))))),
        directions=(draw(st.sampled_from(["minimize", "maximize"])),),
        to_begin=draw(st.none() | st.integers(0, 20)),
        full_work=draw(st.none() | st.just(27.0)),
        synchronous=synchronous,
        later=draw(st.sampled_from([(), (LaterRung(2, 6.0), LaterRung(1, 18.0))]))
        if synchronous
        else (),
        best=draw(st.none() | st.just(0.5)),
    )


@st.composite
def _record(
    draw: st.DrawFn, name: str, size: Allocation | None, has_ended: bool = False
) -> TrialRecord:
    progress = draw(st.sampled_from([0.0, 1.0, 3.0, 26.0, 27.0]))
    reports = tuple((float(at), draw(st.floats(0.0, 1.0))) for at in range(1, int(progress), 5))
    speeds = ()
    if size is not None and progress and draw(st.booleans()):
        speeds = (TrialSpeed(size, 1.0, draw(st.floats(1.0, 2000.0))),)
    stands = TrialProgress(
        name,
        progress,
        draw(st.sampled_from([None, 3.0, 27.0])),
        draw(st.sampled_from([{}, {"width": 1.0}, {"width": 64.0, "depth": 2.0}])),
        reports,
        has_ended,
    )
    return TrialRecord(stands, NOW - 30.0, size, speeds)


@st.composite
def _with_ends(draw: st.DrawFn, objective: Objective) -> Objective:
    after = draw(st.sampled_from(list(AfterDeadline)))
    seconds = draw(st.none() | st.floats(-100.0, 20000.0))
    usd = draw(st.none() | st.floats(0.4, 20.0))
    return replace(
        objective,
        deadline_seconds=None if seconds is None else NOW + seconds,
        budget_usd=None if usd is None else Decimal(usd),
        after_deadline=after,
    )


def _limits(draw: st.DrawFn, supply: tuple[Offer, ...]) -> tuple[Limit, ...]:
    units = draw(st.lists(st.sampled_from(list(LimitUnit)), min_size=1, max_size=2))
    limits = []
    for index, unit in enumerate(units):
        names = draw(
            st.none()
            | st.frozensets(st.sampled_from([some_offer.id for some_offer in supply]), min_size=1)
        )
        most = draw(st.integers(1, 8)) * (0.2 if unit is LimitUnit.USD_PER_HOUR else 1.0)
        limits.append(Limit(f"limit-{index}", unit, most, names))
    return tuple(limits)
