"""Highest prices of a job: of all its instances together, and of each."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.economics.cases import job, offer, snapshot, valued

PRICES = st.decimals("0.01", "50", places=4)


@given(price=PRICES, ceiling=PRICES, minimum=st.integers(1, 4), more=st.integers(0, 8))
def test_what_is_permitted_is_within_the_ceiling(
    price: Decimal, ceiling: Decimal, minimum: int, more: int
) -> None:
    bounds = InstanceBounds(minimum, minimum + more, max_usd_per_hour=ceiling)
    sold = offer("a", str(price))
    if bounds.permits(sold):
        most = bounds.most_of(sold)
        assert minimum <= most <= minimum + more
        assert most * price <= ceiling
        assert most == minimum + more or (most + 1) * price > ceiling
    else:
        assert minimum * price > ceiling


def test_each_instance_has_a_ceiling_of_its_own() -> None:
    bounds = InstanceBounds(1, 4, max_instance_usd_per_hour=Decimal("2"))
    assert bounds.permits(offer("a", "2.00")) and not bounds.permits(offer("b", "2.01"))
    assert bounds.most_of(offer("a", "2.00")) == 4
    assert bounds.ceiling_text == "$2/h an instance"


def planned(moment: Snapshot) -> Decision:
    plan: Plan = MarginalPolicy().plan(moment)
    return plan.decisions[0]


def test_a_plan_keeps_the_ceiling_and_shrinks_when_prices_rise() -> None:
    bounds = InstanceBounds(1, 4, max_usd_per_hour=Decimal("0.25"))
    held = Allocation("small", 2, 1)
    hurried = job(held=held, trained=held, objective=valued(50.0), instances=bounds)
    stays = planned(snapshot(hurried, offers=[offer("small", "0.10")]))
    assert stays.target == held, "three would cost $0.30/h"
    dearer = planned(snapshot(hurried, offers=[offer("small", "0.20")]))
    assert dearer.target == Allocation("small", 1, 1)
    dearest = planned(snapshot(hurried, offers=[offer("small", "0.30")]))
    assert dearest.target is None and dearest.action is Action.WAIT
    assert "no offer costs at most $0.25/h now" in dearest.reason
