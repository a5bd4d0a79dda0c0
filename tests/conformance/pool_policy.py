"""Contract of policies for a fixed pool as tests, for any such policy.

Subclass `PoolPolicyConformance` and define a fixture `policy`; `is_rigid` says whether a job gets
all devices that it requested or none. All examples of a test share the policy, so a policy that
remembers earlier plans fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Placement
from autoscaler.domain.goodput import PipelineParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.plan import Action, Plan
from autoscaler.domain.snapshot import (
    GroundTruth,
    JobSnapshot,
    ServiceReceived,
    Snapshot,
    ThroughputModel,
)
from autoscaler.policies.base import Policy
from tests.conformance.policy import assert_order_does_not_matter
from tests.conformance.policy import shared_fixture as many_examples
from tests.economics.cases import FIXED, NOW, job, model, offer, snapshot

KIND = "card"
KINDS = (KIND, "fast", "old")
MODEL = model(kind=KIND)
shared_fixture = settings(many_examples, max_examples=15)


def machine(number: int, devices: int = 4, kind: str = KIND) -> Offer:
    bought = offer(f"node-{number:03}", devices=devices, kind=kind)
    return replace(bought, purchase=Purchase.RESERVED, usd_per_hour=Decimal(0), shared=True)


def machines(count: int, devices: int = 4) -> tuple[Offer, ...]:
    return tuple(machine(number, devices) for number in range(count))


def placement_of(**shares: int) -> Placement:
    """Return the placement with these devices by machine, such as `placement_of(node_000=4)`."""
    return Placement(
        tuple(sorted((name.replace("_", "-"), devices) for name, devices in shares.items()))
    )


def pool_job(name: str, requested: int | None = 1, **changes: object) -> JobSnapshot:
    plain = job(name, models=MODEL, requested_devices=requested)
    return replace(plain, **changes)  # type: ignore[arg-type]


def pool_snapshot(
    *jobs: JobSnapshot, offers: Iterable[Offer] = machines(2), **changes: object
) -> Snapshot:
    return snapshot(*jobs, offers=offers, **changes)


def placements(plan: Plan) -> dict[str, Placement | None]:
    return {decision.job: decision.placement for decision in plan.decisions}


def sizes(plan: Plan) -> dict[str, int]:
    return {
        name: placement.devices if placement else 0 for name, placement in placements(plan).items()
    }


def after_plan(moment: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot in which each job has its placement, and nothing else differs."""
    planned = placements(plan)
    return replace(
        moment,
        jobs=tuple(
            replace(job_snapshot, placement=planned[job_snapshot.id])
            for job_snapshot in moment.jobs
        ),
    )


def used(shares_of_jobs: Iterable[Placement | None]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for placement in shares_of_jobs:
        total.update(dict(placement.shares if placement else ()))
    return total


def staged_model(stages: int) -> ThroughputModel:
    """Return the model of a job whose replica takes one device for each stage."""
    seconds = (0.01, 1e-4, 0.001, 0.01, 1e-3, 0.01, 1e-3)
    point = PipelineParameters(*seconds, gamma=1.5, stages=stages, microbatches=16)
    return ThroughputModel(KIND, point, (point,))


@st.composite
def pools(draw: st.DrawFn) -> Snapshot:
    """Draw a pool of machines of one kind, and jobs whose held devices fit the pool."""
    offers = tuple(
        machine(number, draw(st.sampled_from([1, 2, 4, 4, 8])))
        for number in range(draw(st.integers(1, 4)))
    )
    free = {offer.id: offer.devices for offer in offers}
    jobs = [_job(draw, f"job-{number}", free) for number in range(draw(st.integers(0, 7)))]
    return Snapshot(NOW, offers, (), tuple(jobs))


@st.composite
def mixed_pools(draw: st.DrawFn) -> Snapshot:
    """Draw one or two equal machines of each of three kinds; each job permits some kinds."""
    offers: list[Offer] = []
    for kind in KINDS:
        devices = draw(st.sampled_from([2, 4, 8]))
        for _ in range(draw(st.integers(1, 2))):
            offers.append(machine(len(offers), devices, kind))
    free = {kind: {offer.id: offer.devices for offer in offers_of(offers, kind)} for kind in KINDS}
    jobs = []
    for number in range(draw(st.integers(0, 6))):
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, unique=True))
        job_snapshot = _job(draw, f"job-{number}", free[kinds[0]])
        truth = (
            replace(job_snapshot.truth, kind_step_seconds=_by_kind(job_snapshot.truth))
            if job_snapshot.truth
            else None
        )
        models = {kind: model(kind=kind) for kind in kinds}
        jobs.append(replace(job_snapshot, models=models, truth=truth))
    return Snapshot(NOW, tuple(offers), (), tuple(jobs))


def offers_of(offers: Iterable[Offer], kind: str) -> list[Offer]:
    return [offer for offer in offers if offer.device_kind == kind]


def _by_kind(truth: GroundTruth) -> dict[str, dict[int, float]]:
    """Return step times by kind and devices, where each kind is twice as fast as the last."""
    return {
        kind: {devices: seconds / 2**position for devices, seconds in truth.step_seconds.items()}
        for position, kind in enumerate(KINDS)
    }


def _job(draw: st.DrawFn, name: str, free: dict[str, int]) -> JobSnapshot:
    held = {offer: draw(st.integers(0, most)) for offer, most in free.items()}
    if not draw(st.booleans()):
        held = dict.fromkeys(held, 0)
    for offer_id, devices in held.items():
        free[offer_id] -= devices
    shares = tuple((offer_id, devices) for offer_id, devices in held.items() if devices)
    age = draw(st.sampled_from([0.0, 60.0, 60.0, 7200.0, 90_000.0]))
    has_run = bool(shares) or draw(st.booleans())
    return pool_job(
        name,
        draw(st.none() | st.integers(1, 12)),
        submitted_seconds=NOW - age,
        remaining_examples=draw(st.none() | st.floats(0.0, 1e6)),
        batch=replace(FIXED, initial=draw(st.sampled_from([1, 4, 64]))),
        placement=Placement(shares) if shares else None,
        service=ServiceReceived(
            attained_device_seconds=draw(st.floats(0.0, 4e5)) if has_run else 0.0,
            started_seconds=NOW - age / 2 if has_run else None,
        ),
        truth=draw(st.none() | _truths()),
    )


@st.composite
def _truths(draw: st.DrawFn) -> GroundTruth:
    example_seconds, sync_seconds = draw(st.floats(0.001, 0.02)), draw(st.floats(0.0, 0.5))
    measured = range(1, draw(st.integers(1, 12)) + 1)
    seconds = {
        devices: example_seconds * 64 / devices + sync_seconds * (devices > 1)
        for devices in measured
    }
    return GroundTruth(seconds, draw(st.floats(0.0, 1e5)))


def assert_machines_have_the_devices(moment: Snapshot, plan: Plan) -> None:
    capacity = {offer.id: offer.devices for offer in moment.offers}
    for name, devices in used(placements(plan).values()).items():
        assert devices <= capacity[name]


def assert_one_decision_a_job(moment: Snapshot, plan: Plan) -> None:
    """Assert one decision for each job, in the order of ids, with a matching one-line reason."""
    by_id = {job_snapshot.id: job_snapshot for job_snapshot in moment.jobs}
    assert [decision.job for decision in plan.decisions] == sorted(by_id)
    for decision in plan.decisions:
        assert (decision.current, decision.target) == (None, None)
        assert decision.reason.startswith(f"{decision.action.value} {decision.job}")
        assert "\n" not in decision.reason
        assert "nan" not in decision.reason
        held = by_id[decision.job].placement
        assert describes(decision.action, held, decision.placement)


def assert_gangs_are_whole(moment: Snapshot, plan: Plan) -> None:
    """Assert that each rigid job gets nothing, or the devices that it requested.

    A request above the devices of every permitted kind counts as all devices of the largest kind.
    """
    given_devices = sizes(plan)
    for job_snapshot in moment.jobs:
        offers_of_kinds = (offers_of(moment.offers, kind) for kind in job_snapshot.models)
        most = max(sum(offer.devices for offer in offers) for offers in offers_of_kinds)
        assert given_devices[job_snapshot.id] in (
            0,
            min(job_snapshot.requested_devices or 1, most),
        )


def assert_kinds_are_not_mixed(moment: Snapshot, plan: Plan) -> None:
    """Assert that a job's devices are of one kind, and that the job has a model of that kind."""
    kinds = {offer.id: offer.device_kind for offer in moment.offers}
    planned = placements(plan)
    for job_snapshot in moment.jobs:
        now = planned[job_snapshot.id]
        used_kinds = {kinds[offer] for offer, _ in now.shares} if now else set()
        assert len(used_kinds) <= 1
        assert used_kinds <= job_snapshot.models.keys()


def assert_no_needless_move(moment: Snapshot, plan: Plan, may_gather: bool = False) -> None:
    """Assert that a job of unchanged size keeps its placement, or moves to fewer machines."""
    planned = placements(plan)
    for job_snapshot in moment.jobs:
        held, now = job_snapshot.placement, planned[job_snapshot.id]
        if held is not None and now is not None and held.devices == now.devices:
            assert held == now or (may_gather and len(now.shares) < len(held.shares))


def describes(action: Action, held: Placement | None, now: Placement | None) -> bool:
    """Return whether an action names the change from the held placement to the planned one."""
    before, after = held.devices if held else 0, now.devices if now else 0
    expected = {
        Action.WAIT: after == 0,
        Action.START: before == 0 < after,
        Action.HOLD: held == now is not None,
        Action.MOVE: before == after > 0 and held != now,
        Action.GROW: 0 < before < after,
        Action.SHRINK: before > after > 0,
    }
    return expected[action]


class PoolPolicyConformance:
    is_rigid = True
    moves_together = False

    @given(moment=pools())
    @shared_fixture
    def test_plans_are_feasible_and_readable(self, policy: Policy, moment: Snapshot) -> None:
        plan = policy.plan(moment)
        assert_machines_have_the_devices(moment, plan)
        assert_one_decision_a_job(moment, plan)
        self.assert_rules_of_this_policy(moment, plan)

    def assert_rules_of_this_policy(self, moment: Snapshot, plan: Plan) -> None:
        """Assert the rules of this kind of policy, beside those of all policies."""
        assert_no_needless_move(moment, plan, self.moves_together)
        if self.is_rigid:
            assert_gangs_are_whole(moment, plan)

    @given(moment=mixed_pools())
    @shared_fixture
    def test_a_job_gets_devices_of_one_permitted_kind(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        plan = policy.plan(moment)
        assert_machines_have_the_devices(moment, plan)
        assert_one_decision_a_job(moment, plan)
        assert_kinds_are_not_mixed(moment, plan)
        if self.is_rigid:
            assert_gangs_are_whole(moment, plan)
        assert placements(policy.plan(after_plan(moment, plan))) == placements(plan)
        for job_snapshot in moment.jobs[:1]:
            alone = replace(moment, jobs=(replace(job_snapshot, placement=None),))
            assert sizes(policy.plan(alone))[job_snapshot.id] > 0

    @given(moment=pools())
    @shared_fixture
    def test_no_plan_adds_devices_of_an_unavailable_machine(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        refused = moment.offers[0].id
        plan = policy.plan(replace(moment, unavailable=frozenset({refused})))
        if self.is_rigid:
            assert_gangs_are_whole(moment, plan)
        held = used(job_snapshot.placement for job_snapshot in moment.jobs)
        assert used(placements(plan).values())[refused] <= held[refused]

    @given(moment=pools(), data=st.data())
    @shared_fixture
    def test_the_order_of_jobs_and_offers_does_not_change_the_plan(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        assert_order_does_not_matter(policy, moment, data)

    @given(moment=pools())
    @shared_fixture
    def test_planning_again_from_the_planned_state_changes_nothing(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        plan = policy.plan(moment)
        again = policy.plan(after_plan(moment, plan))
        assert placements(again) == placements(plan)
        assert {decision.action for decision in again.decisions} <= {Action.HOLD, Action.WAIT}

    @given(moment=pools())
    @shared_fixture
    def test_a_job_that_is_alone_runs(self, policy: Policy, moment: Snapshot) -> None:
        for job_snapshot in moment.jobs[:2]:
            alone = replace(moment, jobs=(replace(job_snapshot, placement=None),))
            assert sizes(policy.plan(alone))[job_snapshot.id] > 0

    def test_replicas_of_several_devices_stay_whole(self, policy: Policy) -> None:
        staged = pool_job("staged", 6, models={KIND: staged_model(4)})
        (alone,) = sizes(policy.plan(pool_snapshot(staged, offers=machines(2)))).values()
        assert alone % 4 == 0
        assert alone == 4 or not self.is_rigid
        others = [pool_job(f"job-{number}", 3) for number in range(3)]
        moment = pool_snapshot(staged, *others, offers=machines(3))
        assert sizes(policy.plan(moment))["staged"] % 4 == 0

    def test_a_job_has_no_more_machines_than_its_owner_allows(self, policy: Policy) -> None:
        offers = tuple(
            replace(machine_offer, instance_type="rack") for machine_offer in machines(4)
        )
        others = [pool_job(f"job-{number}", 3) for number in range(2)]
        for maxima in ((("rack", 2),), (("rack", 2), ("node-000", 0))):
            bounded = pool_job("bounded", 12, instances=InstanceBounds(1, 16, maxima=maxima))
            for jobs in ((bounded,), (bounded, *others)):
                plan = policy.plan(pool_snapshot(*jobs, offers=offers))
                placement = placements(plan)["bounded"]
                shares = dict(placement.shares if placement else ())
                assert len(shares) <= 2 and (len(maxima) == 1 or "node-000" not in shares)
                if jobs == (bounded,) and (self.is_rigid or len(maxima) == 1):
                    assert 0 < sum(shares.values()) <= 8

    def test_many_jobs_on_many_machines_are_planned(self, policy: Policy) -> None:
        jobs = [
            pool_job(
                f"job-{number}",
                1 + number % 16,
                submitted_seconds=NOW - number,
                truth=GroundTruth({devices: 1.0 / devices for devices in range(1, 65)}, 1e3),
            )
            for number in range(500)
        ]
        plan = policy.plan(pool_snapshot(*jobs, offers=machines(64)))
        assert 0 < sum(sizes(plan).values()) <= 256
        assert len(plan.decisions) == 500

    def test_snapshots_without_jobs_or_capacity_start_nothing(self, policy: Policy) -> None:
        assert policy.plan(pool_snapshot()).decisions == ()
        for offers in ((), (offer("own"),)):
            (decision,) = policy.plan(pool_snapshot(pool_job("a"), offers=offers)).decisions
            assert (decision.action, decision.placement) == (Action.WAIT, None)


class SolvedPoolConformance(PoolPolicyConformance):
    """Contract of policies that solve one optimization problem for all jobs."""

    def assert_rules_of_this_policy(self, moment: Snapshot, plan: Plan) -> None:
        """Assert that the solver reports no problem; a job may move without a change of size."""
        assert plan.notes == ()
