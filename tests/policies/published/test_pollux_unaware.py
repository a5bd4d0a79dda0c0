from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.published.pollux import PolluxPolicy
from autoscaler.policies.published.pollux_unaware import PolluxUnawarePolicy
from tests.conformance.pool_policy import (
    KINDS,
    assert_kinds_are_not_mixed,
    assert_machines_have_the_devices,
    assert_one_decision_a_job,
    machine,
    machines,
    mixed_pools,
    pool_job,
    pool_snapshot,
    shared_fixture,
    sizes,
)
from tests.economics.cases import NOW, model

UNAWARE = PolluxUnawarePolicy()


@given(moment=mixed_pools())
@shared_fixture
def test_whatever_the_moment_the_plan_can_be_carried_out(moment: Snapshot) -> None:
    plan = UNAWARE.plan(moment)
    assert_machines_have_the_devices(moment, plan)
    assert_one_decision_a_job(moment, plan)
    assert_kinds_are_not_mixed(moment, plan)


def test_what_a_job_is_given_of_other_kinds_lies_idle() -> None:
    models = {kind: model(kind=kind) for kind in KINDS}
    wide = pool_job("wide", models=models, submitted_seconds=NOW - 7200.0)
    offers = tuple(machine(place, 2, kind) for place, kind in enumerate(KINDS))
    assert sizes(PolluxPolicy().plan(pool_snapshot(wide, offers=offers))) == {"wide": 2}
    large = replace(wide, batch=replace(wide.batch, initial=6400, maximum=6400))
    assert sizes(UNAWARE.plan(pool_snapshot(large, offers=offers))) == {"wide": 2}


def test_on_a_pool_of_one_kind_it_is_pollux() -> None:
    moment = pool_snapshot(pool_job("a"), pool_job("b"), offers=machines(3))
    assert UNAWARE.plan(moment) == PolluxPolicy().plan(moment)
