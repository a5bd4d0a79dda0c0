from __future__ import annotations

from autoscaler.domain.plan import Action
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.policies.pools.pool import Grant, gangs, place, plan_of, pool_of
from tests.conformance.pool_policy import (
    KINDS,
    machine,
    machines,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
)
from tests.economics.cases import model, offer

HELD = pool_job("held", placement=placement_of(node_000=2))


def test_the_pool_is_the_machines_that_are_shared() -> None:
    pool = pool_of(pool_snapshot(offers=(machine(1, 8), offer("own"), machine(0, 4))))
    assert list(pool.capacity.items()) == [("node-000", 4), ("node-001", 8)]
    assert (pool.devices, pool.device_kind) == (12, "card")
    assert pool.fewest_machines() == (1,) * 8 + (2,) * 4


def test_of_an_unavailable_machine_there_is_what_is_held() -> None:
    pool = pool_of(pool_snapshot(HELD, unavailable=frozenset({"node-000"})))
    assert pool.capacity == {"node-000": 2, "node-001": 4}
    assert (pool.devices, pool.available) == (8, 6)


def test_the_emptiest_machines_are_filled_first_and_ties_go_by_id() -> None:
    pool = pool_of(pool_snapshot(offers=machines(3)))
    queue = [pool_job(name) for name in ("small", "large", "last")]
    found = place([*queue, HELD], {"small": 1, "large": 6, "last": 1, "held": 2}, pool)
    assert found == {
        "held": placement_of(node_000=2),
        "small": placement_of(node_001=1),
        "large": placement_of(node_002=4, node_001=2),
        "last": placement_of(node_000=1),
    }


def test_nobody_stays_on_a_machine_that_has_gone_or_has_shrunk() -> None:
    for offers in ((machine(1, 4),), (machine(0, 1), machine(1, 4))):
        pool = pool_of(pool_snapshot(offers=offers))
        assert place([HELD], {"held": 2}, pool) == {"held": placement_of(node_001=2)}


def test_gangs_are_whole_and_no_larger_than_the_pool() -> None:
    pool = pool_of(pool_snapshot())
    queue = [pool_job("a", 3), pool_job("b", 9), pool_job("c", None), pool_job("d", 4)]
    assert gangs(queue, pool, 8) == {"a": 3, "b": 0, "c": 1, "d": 4}
    assert gangs(queue, pool, 8, backfills=False) == {"a": 3, "b": 0, "c": 0, "d": 0}
    assert gangs(queue[1:2], pool, 8) == {"b": 8}


def test_reasons_tell_what_changes() -> None:
    wide = placement_of(node_000=1, node_001=1, node_002=2)
    jobs = [
        pool_job("go"),
        pool_job("keep", placement=placement_of(node_000=1)),
        pool_job("less", placement=wide),
        pool_job("lose", placement=placement_of(node_001=1)),
        pool_job("more", placement=placement_of(node_002=1)),
    ]
    moment = pool_snapshot(*jobs, offers=machines(3))
    sizes = {"go": 1, "keep": 1, "less": 2, "lose": 0, "more": 3}
    grants = {name: Grant(size, "so it is") for name, size in sizes.items()}
    plan = plan_of(moment, pool_of(moment), jobs, grants)
    assert [decision.reason for decision in plan.decisions] == [
        "start go with 1 on node-001: so it is",
        "hold keep with 1 on node-000: so it is",
        "shrink less from 4 on 3 machines to 2 on node-002: so it is",
        "wait lose without 1 on node-001: so it is",
        "grow more from 1 on node-002 to 3 on node-000: so it is",
    ]
    gone = pool_snapshot(HELD, offers=(machine(1),))
    (decision,) = plan_of(gone, pool_of(gone), [HELD], {"held": Grant(2, "so")}).decisions
    assert decision.action is Action.MOVE
    assert decision.reason == "move held from 2 on node-000 to 2 on node-001: so"


MIXED = (machine(0, 4), machine(1, 8, "fast"), machine(2, 8, "fast"), machine(3, 2, "old"))


def job_of(name: str, requested: int | None, *kinds: str, **changes: object) -> JobSnapshot:
    return pool_job(name, requested, models={kind: model(kind=kind) for kind in kinds}, **changes)


def test_a_pool_of_several_kinds_has_parts() -> None:
    pool = pool_of(pool_snapshot(offers=MIXED, unavailable=frozenset({"node-001"})))
    parts = pool.by_kind()
    assert {kind: part.devices for kind, part in parts.items()} == {
        "card": 4,
        "fast": 16,
        "old": 2,
    }
    assert parts["fast"].capacity == {"node-001": 0, "node-002": 8}
    assert (pool.devices, pool.available, pool.device_kind) == (22, 14, "fast")
    assert pool.kind_of(placement_of(node_001=1, node_002=8)) == "fast"
    assert pool.kind_of(placement_of(node_000=1, node_002=8)) is pool.kind_of(None) is None
    assert list(pool.for_job(job_of("a", 1, "old", "fast", "other"))) == ["fast", "old"]
    assert list(pool.for_job(pool_job("a", models={}))) == ["card", "fast", "old"]


def test_a_gang_is_put_where_one_kind_has_room() -> None:
    pool = pool_of(pool_snapshot(offers=MIXED))
    queue = [
        job_of("stays", 2, *KINDS, placement=placement_of(node_003=2)),
        job_of("wide", 14, *KINDS),
        job_of("narrow", 3, *KINDS),
        job_of("old", 9, "old"),
        job_of("small", 2, *KINDS),
        job_of("nowhere", 1, "other"),
    ]
    sizes = gangs(queue, pool, pool.available)
    assert sizes == {"stays": 2, "wide": 14, "narrow": 3, "old": 0, "small": 2, "nowhere": 0}
    assert place(queue, sizes, pool) == {
        "stays": placement_of(node_003=2),
        "wide": placement_of(node_001=8, node_002=6),
        "narrow": placement_of(node_000=3),
        "old": None,
        "small": placement_of(node_002=2),
        "nowhere": None,
    }


def test_a_gang_goes_where_it_sends_nobody_away_if_it_can() -> None:
    pool = pool_of(pool_snapshot(offers=MIXED))
    holds = job_of("holds", 14, *KINDS, placement=placement_of(node_001=8, node_002=6))
    queue = [job_of("first", 4, *KINDS), holds]
    found = place(queue, gangs(queue, pool, pool.available), pool)
    assert found == {"first": placement_of(node_000=4), "holds": holds.placement}


def test_a_grant_may_name_the_kind() -> None:
    moment = pool_snapshot(job_of("a", 2, *KINDS), offers=MIXED)
    plan = plan_of(moment, pool_of(moment), moment.jobs, {"a": Grant(2, "so", "old")})
    assert placements(plan) == {"a": placement_of(node_003=2)}
