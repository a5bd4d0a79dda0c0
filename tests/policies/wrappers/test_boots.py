from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.registry import create_policy
from autoscaler.policies.wrappers.boots import FinishesBoots
from tests.conformance.pool_policy import (
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
    pools,
    used,
)
from tests.economics.cases import SMALL, devices, job, snapshot

ONE, TWO = Allocation(SMALL.id, 1, 1), Allocation(SMALL.id, 2, 1)


@dataclass(frozen=True)
class Gives:
    """A policy that plans these targets, and nothing for the jobs that it does not name."""

    targets: dict[str, Allocation | None]
    stops: bool = False

    def plan(self, snapshot: Snapshot) -> Plan:
        decisions = (
            Decision(
                job.id,
                Action.STOP if self.stops else Action.MOVE,
                job.held,
                self.targets.get(job.id),
                f"move {job.id}",
            )
            for job in snapshot.jobs
        )
        return Plan(tuple(decisions))


@given(moment=pools(), name=st.sampled_from(["gavel", "sia", "tiresias", "ref"]), data=st.data())
@settings(deadline=None, max_examples=40)
def test_undisturbed_jobs_keep_their_machines_and_others_have_what_is_left(
    moment: Snapshot, name: str, data: st.DataObject
) -> None:
    holders = [one.id for one in moment.jobs if one.placement is not None]
    undisturbed = data.draw(st.frozensets(st.sampled_from(holders))) if holders else frozenset()
    plan = FinishesBoots(create_policy(name)).plan(replace(moment, undisturbed=undisturbed))
    found, held = placements(plan), {one.id: one.placement for one in moment.jobs}
    assert found.keys() == held.keys()
    assert all(found[name] == held[name] for name in undisturbed)
    most = {offer.id: offer.devices for offer in moment.offers}
    assert all(count <= most[offer] for offer, count in used(found.values()).items())
    for decision in plan.decisions:
        assert decision.reason.startswith(f"{decision.action.value} {decision.job}")


def test_a_job_that_made_room_for_one_that_does_not_come_stays() -> None:
    starting, running = job("starting", ONE, trained=None), job("running", ONE)
    moment = snapshot(starting, running, job("waiting"), offers=(SMALL,), limits=[devices(2)])
    gives_all = Gives({"waiting": TWO})
    assert _targets(gives_all, moment) == {"starting": None, "running": None, "waiting": TWO}
    kept = replace(moment, undisturbed=frozenset({"starting"}))
    assert _targets(gives_all, kept) == {"starting": ONE, "running": ONE, "waiting": None}
    gives_one = Gives({"waiting": ONE})
    assert _targets(gives_one, kept) == {"starting": ONE, "running": None, "waiting": ONE}


def test_a_job_that_is_to_stop_stops_while_it_starts() -> None:
    starting = job("starting", ONE, trained=None)
    moment = snapshot(starting, offers=(SMALL,), undisturbed=frozenset({"starting"}))
    assert _targets(Gives({}, stops=True), moment) == {"starting": None}


@pytest.mark.parametrize(("is_pool", "stays"), [(False, False), (True, True)])
def test_a_policy_that_weighs_boots_is_not_corrected_where_it_buys(
    is_pool: bool, stays: bool
) -> None:
    @dataclass(frozen=True)
    class Weighs(Gives):
        weighs_boots = True

    held = pool_job("starting", placement=placement_of(node_000=1), held=ONE)
    moment = pool_snapshot(held) if is_pool else snapshot(held, offers=(SMALL,))
    plan = FinishesBoots(Weighs({})).plan(replace(moment, undisturbed=frozenset({"starting"})))
    assert (plan.decisions[0].target == ONE) is stays


def _targets(policy: Gives, moment: Snapshot) -> dict[str, Allocation | None]:
    decisions = FinishesBoots(policy).plan(moment).decisions
    return {decision.job: decision.target for decision in decisions}
