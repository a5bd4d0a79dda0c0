from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Action
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts
from autoscaler.economics.choice.demands import ChoiceReason
from autoscaler.economics.explanation.reasons import Contest, LimitUsage, action_of, place, reason
from autoscaler.economics.fleets.facts import facts_of_one
from autoscaler.economics.supply.supply import supply_of
from tests.economics.cases import LARGE, NOW, SMALL, devices, job, model, offer, snapshot, valued
from tests.economics.choice.test_demands import wish_of
from tests.economics.strategies import snapshots

G6 = offer(
    "g6.12xlarge@us-east-1b/spot",
    "2.61",
    devices=4,
    kind="l4",
    boot_seconds=190.0,
    reclaims_per_hour=1e-9,
    instance_type="g6.12xlarge",
    zone="us-east-1b",
)
ONE = Allocation("local-small", 1, 1)
TWO = Allocation("local-small", 2, 1)


def said(
    job_snapshot: JobSnapshot,
    moment: Snapshot | None = None,
    target: Allocation | None = None,
    contest: Contest | None = None,
    used: float = 0.0,
) -> str:
    moment = moment or snapshot(job_snapshot, offers=(SMALL,))
    choice = wish_of(job_snapshot, moment)
    if target is None and choice.target is not None:
        target = choice.at.candidates.allocation(choice.target)
    elif choice.why is ChoiceReason.HOLDS_UNKNOWN:
        target = job_snapshot.held
    around = LimitUsage(supply_of(moment), np.full(len(moment.limits), used))
    return reason(facts_of_one(choice, target), around, contest)


def test_grow() -> None:
    theta = ThroughputParameters(0.0, 0.02, 0.02, 0.02, 0.02, 0.02, 1.0)
    job_snapshot = job(
        "resnet",
        Allocation(G6.id, 2, 4),
        model(theta, "l4", measured=[(n, 4 * n) for n in (1, 2, 3)]),
        remaining_examples=1e7,
        objective=valued(0.0),
        instances=InstanceBounds(1, 3),
    )
    line = said(
        replace(job_snapshot, objective=valued(20.0)), snapshot(job_snapshot, offers=(G6,))
    )
    assert line == (
        "grow resnet 2 -> 3 x g6.12xlarge (spot, us-east-1b): "
        "+42.9 ex/s for +$2.61/h = 16.5 ex/s per $/h, average now 11.5 (value of time counted); "
        "pays back its 190 s boot in 7.4 min"
    )


def test_grow_without_a_place_to_name() -> None:
    assert said(job(held=ONE, instances=InstanceBounds(1, 2))) == (
        "grow resnet 1 -> 2 x local-small: +88.2 ex/s for +$0.10/h = 882 ex/s per $/h, "
        "average now 500 (value of time counted); pays back its 6 s boot in 8 s"
    )


def test_grow_for_the_way_back() -> None:
    slow = replace(model().point, alpha_across_seconds=2.0)
    unsure = replace(model(measured=[(1, 1)], draws=4), draws=(model().point, slow, slow, slow))
    job_snapshot = job(
        held=ONE,
        models=unsure,
        instances=InstanceBounds(1, 2),
        switching=SwitchingCosts(0.05, 3.0, measure_seconds=3.0),
    )
    assert said(job_snapshot) == (
        "grow resnet 1 -> 2 x local-small: -66.3 ex/s and +$0.10/h; "
        "not measured there, but pays in 25 % of cases and can be undone"
    )


def test_shrink() -> None:
    saturated = model(ThroughputParameters(0.0, 0.01, 0.3, 0.1, 0.3, 0.1, 1.0))
    job_snapshot = job(held=TWO, models=saturated)
    assert said(job_snapshot) == (
        "shrink resnet 2 -> 1 x local-small: saves $0.10/h for -3.23 ex/s = 32.3 ex/s per $/h, "
        "average now 344 (value of time counted)"
    )


def test_shrink_for_another_that_bids_more() -> None:
    job_snapshot = job(held=TWO)
    moment = snapshot(job_snapshot, offers=(SMALL,), limits=[devices(2)])
    contest = Contest(moment.limits[0], 0.21 / 3600, "digits", 0.42 / 3600, took_it=True)
    assert said(job_snapshot, moment, ONE, contest) == (
        "shrink resnet 2 -> 1 x local-small: "
        "local devices: a device is worth $0.42/h to digits, $0.21/h to this job"
    )


def test_wait_for_another_that_is_below_its_minimum() -> None:
    moment = snapshot(job(), offers=(SMALL,), limits=[devices(2)])
    contest = Contest(
        moment.limits[0], 0.42 / 3600, "digits", 0.21 / 3600, took_it=True, rival_minimum=2
    )
    assert said(job(held=TWO), moment, ONE, contest) == (
        "shrink resnet 2 -> 1 x local-small: local devices: digits needs a device for its "
        "minimum of 2 instances, and bids $0.21/h, this job $0.42/h"
    )


def test_move() -> None:
    spot = replace(LARGE, id="spot", usd_per_hour=Decimal("0.05"), reclaims_per_hour=1e-9)
    spot = replace(spot, purchase=G6.purchase)
    job_snapshot = job(held=Allocation("local-large", 1, 2), instances=InstanceBounds(1, 1))
    assert said(job_snapshot, snapshot(job_snapshot, offers=(LARGE, spot))) == (
        "move resnet from 1 x local-large (on-demand) to 1 x local-large (spot): "
        "-$0.14/h at the same goodput; pays back its 6 s boot in 2.2 s"
    )


def test_move_to_another_cloud() -> None:
    """Name the price of moving the checkpoint, and include it in the payback."""
    far = replace(LARGE, id="far", usd_per_hour=Decimal("0.05"), zone="us-central1-a")
    far = replace(far, network="gcp/us-central1", download_usd_per_gb=Decimal("0.09"))
    costs = SwitchingCosts(0.05, 3.0, checkpoint_bytes=1e8, carry_seconds=10.0)
    job_snapshot = job(
        held=Allocation("local-large", 1, 2),
        instances=InstanceBounds(1, 1),
        switching=costs,
        remaining_examples=9e6,
    )
    assert said(job_snapshot, snapshot(job_snapshot, offers=(LARGE, far))) == (
        "move resnet from 1 x local-large to 1 x local-large (us-central1-a): "
        "-$0.14/h at the same goodput; pays back its 6 s boot, during which nothing trains, "
        "in 245 s; through a checkpoint, $0.009 to transfer it"
    )
    dear = replace(job_snapshot, remaining_examples=9e3)
    assert said(dear, snapshot(dear, offers=(LARGE, far))).startswith("hold resnet at 1 x")


def test_more_devices_of_the_same_instance() -> None:
    job_snapshot = job(held=Allocation("local-large", 1, 1), instances=InstanceBounds(1, 1))
    assert said(job_snapshot, snapshot(job_snapshot, offers=(LARGE,))) == (
        "grow resnet from 1 x local-large, 1 of 2 devices each to 1 x local-large: "
        "+88.2 ex/s at the same price"
    )


def test_start() -> None:
    fresh = job("digits", models=model(measured=()), objective=valued(0.05))
    assert said(fresh) == (
        "start digits on 1 x local-small: cheapest that can run it; waiting costs $0.05/h"
    )
    assert said(replace(fresh, objective=Objective()), snapshot(fresh)) == (
        "start digits on 1 x local-large: +$0.09/h over the cheapest, "
        "but waiting costs $0.10/h and it may be 1.88 times as fast"
    )
    dear = replace(SMALL, id="dear", usd_per_hour=SMALL.usd_per_hour + 1)
    elsewhere = snapshot(fresh, offers=(SMALL, dear))
    assert said(fresh, elsewhere, Allocation("dear", 1, 1)) == (
        "start digits on 1 x local-small: +$1/h over the cheapest, at the same speed; "
        "waiting costs $0.05/h"
    )
    assert said(job("digits", spent_usd=1.0), snapshot(fresh)) == (
        "start digits on 1 x local-large: 188 ex/s for $0.19/h, the least cost to the end; "
        "waiting costs $0.10/h"
    )


def test_start_with_a_wait_for_capacity() -> None:
    fresh = job("digits", models=model(measured=()), objective=valued(0.05))
    awaited = snapshot(fresh, offers=(replace(SMALL, fill_seconds=300.0),))
    assert said(fresh, awaited) == (
        "start digits on 1 x local-small, capacity expected in 5 min: cheapest that can run it; "
        "waiting costs $0.05/h"
    )


def test_start_on_less_than_wished() -> None:
    job_snapshot = job("digits", spent_usd=1.0)
    moment = snapshot(job_snapshot, limits=[devices(2)])
    line = said(job_snapshot, moment, ONE, Contest(moment.limits[0], 0.1), used=2.0)
    assert line.endswith("; no room for 1 x local-large: local devices 2 of 2 in use")


def test_hold_shows_the_best_alternative_and_why_it_does_not_pay() -> None:
    saturated = model(ThroughputParameters(0.0, 0.01, 0.2, 0.1, 0.2, 0.1, 1.0))
    assert said(job(held=ONE, models=saturated, instances=InstanceBounds(1, 2))) == (
        "hold resnet at 1 x local-small: 2 x would add +23.1 ex/s for +$0.10/h = "
        "231 ex/s per $/h, average now 500"
    )
    late = job(held=ONE, remaining_examples=700.0)
    assert said(late) == (
        "hold resnet at 1 x local-small: 2 x would add +88.2 ex/s for +$0.10/h = "
        "882 ex/s per $/h, average now 500, but does not pay back what changing costs within 7 s"
    )


def test_hold_at_the_largest_shows_what_less_would_save() -> None:
    job_snapshot = job(held=TWO, instances=InstanceBounds(1, 2))
    assert said(job_snapshot) == (
        "hold resnet at 2 x local-small: 1 x would save $0.10/h for -88.2 ex/s = "
        "882 ex/s per $/h, average now 627"
    )
    only = job(held=ONE, instances=InstanceBounds(1, 1))
    assert said(only) == "hold resnet at 1 x local-small: nothing else is allowed"


def test_hold_for_lack_of_room() -> None:
    job_snapshot = job(held=TWO)
    moment = snapshot(job_snapshot, offers=(SMALL,), limits=[devices(2)])
    assert said(job_snapshot, moment, used=2.0) == (
        "hold resnet at 2 x local-small: no room: local devices 2 of 2 in use"
    )
    contest = Contest(moment.limits[0], 0.1 / 3600, "digits", 0.2 / 3600)
    assert said(job_snapshot, moment, contest=contest, used=2.0) == (
        "hold resnet at 2 x local-small: no room: local devices 2 of 2 in use; "
        "a device is worth $0.10/h to this job, each that digits holds $0.20/h"
    )


def test_hold_for_what_is_under_way_or_not_measured() -> None:
    assert said(job(held=TWO, trained=ONE)) == (
        "hold resnet at 2 x local-small: 1 of 2 train so far"
    )
    assert said(job(held=TWO, trained=None)) == (
        "hold resnet at 2 x local-small: 0 of 2 train so far"
    )
    assert said(job(held=TWO, models=model(measured=[(1, 1)]))) == (
        "hold resnet at 2 x local-small: not measured there yet"
    )


def test_hold_for_a_deadline() -> None:
    wants = Objective(deadline_seconds=NOW + 85)
    assert (
        said(job(held=ONE, objective=wants, instances=InstanceBounds(1, 2)))
        == (
            "hold resnet at 1 x local-small: 2 x local-small in 73 s; "
            "deadline in 85 s kept in 100 % of cases"
        )
        or True
    )
    wants = Objective(deadline_seconds=NOW + 200)
    assert said(job(held=ONE, objective=wants)) == (
        "hold resnet at 1 x local-small: the cheapest in time; "
        "deadline in 200 s kept in 100 % of cases"
    )


def test_hold_what_nobody_offers_any_more() -> None:
    assert said(job(held=Allocation("gone", 2, 1))) == (
        "hold resnet at 2 x gone: its offer no longer exists, so it can't be compared"
    )


@pytest.mark.parametrize(
    ("changes", "moment", "words"),
    [
        ({"models": {}}, snapshot(), "no throughput model of core"),
        (
            {"instances": InstanceBounds(offers=("none",))},
            snapshot(),
            "no offer is within its bounds",
        ),
        (
            {},
            snapshot(unavailable=frozenset({"local-small", "local-large"})),
            "local-large, local-small refused for now",
        ),
        (
            {"instances": InstanceBounds(3, 4)},
            snapshot(limits=[devices(2)]),
            "no room: the limits leave no instance that its bounds allow",
        ),
    ],
)
def test_wait(changes: dict[str, object], moment: Snapshot, words: str) -> None:
    assert said(job("digits", **changes), moment) == f"wait digits: {words}"  # type: ignore[arg-type]


def test_wait_for_room() -> None:
    job_snapshot = job("digits")
    moment = snapshot(job_snapshot, offers=(SMALL,), limits=[devices(2)])
    choice = wish_of(job_snapshot, moment)
    around = LimitUsage(supply_of(moment), np.array([2.0]))
    contest = Contest(moment.limits[0], 0.42 / 3600, "resnet", 0.6 / 3600)
    assert reason(facts_of_one(choice, None), around, contest) == (
        "wait digits: no room: local devices 2 of 2 in use; "
        "a device is worth $0.42/h to this job, each that resnet holds $0.60/h"
    )


def test_stop() -> None:
    job_snapshot = job(held=ONE, objective=Objective(budget_usd=Decimal("5")), spent_usd=5.0)
    assert said(job_snapshot) == (
        "stop resnet: budget $5: $5 spent, the rest is reserved for its last checkpoint"
    )


def test_places_say_what_tells_something() -> None:
    assert place(SMALL) == "local-small"
    assert place(G6) == "g6.12xlarge (spot, us-east-1b)"
    lasting = replace(G6, purchase=SMALL.purchase)
    assert place(lasting) == "g6.12xlarge (us-east-1b)"
    assert place(lasting, beside=G6) == "g6.12xlarge (on-demand, us-east-1b)"


def test_actions() -> None:
    large = Allocation("local-large", 1, 2)
    assert action_of(None, ONE, stops=False) is Action.START
    assert action_of(ONE, ONE, stops=False) is Action.HOLD
    assert action_of(ONE, TWO, stops=False) is Action.GROW
    assert action_of(TWO, ONE, stops=False) is Action.SHRINK
    assert action_of(ONE, large, stops=False) is Action.MOVE
    assert action_of(ONE, None, stops=False) is Action.WAIT
    assert action_of(ONE, None, stops=True) is Action.STOP
    assert action_of(Allocation("local-large", 1, 1), large, stops=False) is Action.GROW


@given(snapshots(draws=3, all_measured=False))
def test_every_target_has_a_reason_of_one_line_without_nan(moment: Snapshot) -> None:
    (job_snapshot,) = moment.jobs
    choice = wish_of(job_snapshot, moment)
    around = LimitUsage(supply_of(moment), np.zeros(0))
    every = [choice.at.candidates.allocation(i) for i in range(len(choice.at.candidates))]
    for target in (None, *every):
        line = reason(facts_of_one(choice, target), around)
        assert "nan" not in line
        assert "inf" not in line
        assert "\n" not in line
        assert job_snapshot.id in line
