from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Placement
from autoscaler.domain.errors import SolverError
from autoscaler.policies.pools import configurations as module
from autoscaler.policies.pools.configurations import (
    ConfigurationCosts,
    MachineConfiguration,
    assign,
    configurations,
)
from autoscaler.policies.pools.pool import Pool
from tests.conformance.pool_policy import placement_of

ONE, TWO, FOUR = (MachineConfiguration(1, devices, "card") for devices in (1, 2, 4))
EIGHT = MachineConfiguration(2, 4, "card")


def pool(*devices: int) -> Pool:
    capacity = {f"node-{number:03}": each for number, each in enumerate(devices)}
    return Pool(sum(devices), capacity, "card")


def claim(
    job: str,
    costs: Mapping[MachineConfiguration, float],
    held: Placement | None = None,
    staying_cost: float = 0.0,
) -> ConfigurationCosts:
    return ConfigurationCosts(job, held, costs, staying_cost, idle_cost=10.0)


def test_parts_of_a_machine_are_powers_of_two_and_several_machines_are_whole() -> None:
    assert configurations(pool(4, 4, 4, 2)) == (
        ONE,
        TWO,
        FOUR,
        EIGHT,
        MachineConfiguration(3, 4, "card"),
    )
    assert configurations(pool(6)) == (ONE, TWO, FOUR, MachineConfiguration(1, 6, "card"))
    assert configurations(pool()) == configurations(pool(0)) == ()


def test_small_jobs_share_a_machine_so_that_others_stay_whole() -> None:
    claims = [claim(name, {ONE: 1.0}) for name in "abc"] + [claim("wide", {EIGHT: 1.0})]
    assert assign(claims, pool(4, 4, 4)).placements == {
        "a": placement_of(node_002=1),
        "b": placement_of(node_002=1),
        "c": placement_of(node_002=1),
        "wide": placement_of(node_000=4, node_001=4),
    }


def test_whole_machines_are_not_had_where_others_stay() -> None:
    stay = [claim("a", {}, placement_of(node_000=1)), claim("b", {}, placement_of(node_001=1))]
    wide = claim("wide", {EIGHT: 1.0, FOUR: 2.0, TWO: 3.0})
    found = assign([*stay, wide], pool(4, 4)).placements
    assert found == {
        "a": placement_of(node_000=1),
        "b": placement_of(node_001=1),
        "wide": placement_of(node_000=2),
    }


def test_no_machine_has_two_distributed_jobs() -> None:
    spread = placement_of(node_000=1, node_001=1)
    claims = [claim("a", {}, spread), claim("b", {}, spread, staying_cost=1.0)]
    assert assign(claims, pool(4, 4)).placements == {"a": spread, "b": None}


def test_what_stands_is_left_only_for_what_is_better() -> None:
    held = placement_of(node_000=1)
    for cost, expected in ((1.0, held), (1.0 - 1e-9, held), (0.9, placement_of(node_001=2))):
        other = claim("b", {}, placement_of(node_000=3))
        found = assign([claim("a", {TWO: cost}, held, 1.0), other], pool(4, 4))
        assert found.placements["a"] == expected


def test_where_the_solver_fails_all_stay_and_others_get_a_device_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(claims: Sequence[ConfigurationCosts], pool: Pool) -> list[object]:
        raise SolverError("branch and bound found nothing: out of memory")

    monkeypatch.setattr(module, "_best", fails)
    claims = [
        claim("a", {FOUR: 0.0}, placement_of(node_000=2), 5.0),
        *(claim(name, {ONE: 1.0, TWO: 0.0}) for name in "bcd"),
    ]
    found = assign(claims, pool(4))
    assert found.trouble == "branch and bound found nothing: out of memory"
    assert found.placements == {
        "a": placement_of(node_000=2),
        "b": placement_of(node_000=1),
        "c": placement_of(node_000=1),
        "d": None,
    }


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[ConfigurationCosts], Pool]:
    """Up to three jobs on two machines, some of which hold a part of one."""
    machines = pool(draw(st.sampled_from([2, 4])), 4)
    free = dict(machines.capacity)
    claims = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        offer, devices = draw(st.sampled_from(sorted(free))), draw(st.integers(0, 3))
        holds = 0 < devices <= free[offer]
        free[offer] -= devices if holds else 0
        costs = {one: draw(st.floats(0.0, 9.0)) for one in configurations(machines)}
        held = Placement(((offer, devices),)) if holds else None
        claims.append(claim(name, costs, held, draw(st.floats(0.0, 9.0))))
    return claims, machines


@given(case=cases())
@settings(deadline=None, max_examples=60)
def test_nothing_costs_less_that_could_be_placed(
    case: tuple[list[ConfigurationCosts], Pool],
) -> None:
    """Against every way to place every job on two machines."""
    claims, machines = case
    first, second = machines.capacity
    least = min(
        sum(cost for cost, _ in each)
        for each in itertools.product(*(_ways(one, first, second) for one in claims))
        if _fits([shares for _, shares in each], machines)
    )
    found = assign(claims, machines).placements
    assert _fits([dict(one.shares) if one else {} for one in found.values()], machines)
    cost = sum(_cost(one, found[one.job]) for one in claims)
    assert cost == pytest.approx(least, rel=1e-4, abs=1e-4)


def _ways(one: ConfigurationCosts, first: str, second: str) -> list[tuple[float, dict[str, int]]]:
    ways: list[tuple[float, dict[str, int]]] = [(one.idle_cost, {})]
    if one.held is not None:
        ways.append((one.staying_cost, dict(one.held.shares)))
    for configuration, cost in one.costs.items():
        devices = configuration.devices
        if configuration.machines == 2:
            ways.append((cost, {first: devices, second: devices}))
        else:
            ways += [(cost, {first: devices}), (cost, {second: devices})]
    return ways


def _fits(shares: Sequence[Mapping[str, int]], machines: Pool) -> bool:
    total: Counter[str] = Counter()
    for each in shares:
        total.update(each)
    is_there = all(devices <= machines.capacity[offer] for offer, devices in total.items())
    return is_there and sum(len(each) > 1 for each in shares) <= 1


def _cost(one: ConfigurationCosts, placement: Placement | None) -> float:
    """The least that this placement can have been chosen for."""
    if placement is None:
        return one.idle_cost
    devices = {devices for _, devices in placement.shares}
    configuration = MachineConfiguration(len(placement.shares), devices.pop(), "card")
    anew = one.costs.get(configuration, one.idle_cost)
    return min(anew, one.staying_cost) if placement == one.held else anew
