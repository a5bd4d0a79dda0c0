"""Orders on flex-start, which wait for capacity: the provider's side, and the controller's."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.workers import InlineWorkers
from autoscaler.domain.errors import QuotaExceeded
from autoscaler.domain.instance import CloudState, Desired, HeldInstance, InstancePhase
from autoscaler.ledger.ledger import Ledger
from providers.gcp.provider import GcpProvider
from tests.conformance.provider import find, state
from tests.fakes.faults import Fault
from tests.fakes.gcp.server import FakeGcp
from tests.providers.cloud.controlled import ControlledWorld
from tests.providers.gcp.cloud import FLEX, SMALL, GcpWorld

A100 = "gpu/a2-highgpu-1g/us-central1-a/flex-start"


def gcp(fake: FakeGcp, kept: Path, **pool: object) -> GcpWorld:
    """A project that sells on flex-start, too, and has no capacity for that."""
    world = GcpWorld(fake, kept, purchases=["on-demand", "flex-start"], **pool)
    world.give_capacity(FLEX, 0)
    return world


@pytest.fixture
def world(fake: FakeGcp, tmp_path: Path) -> GcpWorld:
    return gcp(fake, tmp_path)


def test_an_insert_says_how_long_it_waits_and_others_do_not(world: GcpWorld) -> None:
    provider = world.connect()
    provider.launch(world.request("1", FLEX))
    provider.launch(world.request("2"))
    flexible, usual = (sent.body for sent in world.project.sent if sent.body.get("name"))
    assert flexible["params"] == {"requestValidForDuration": {"seconds": "7200"}}
    assert "params" not in usual


def test_a_launch_does_not_wait_for_its_turn(world: GcpWorld) -> None:
    before_seconds = world.clock.now()
    launched = world.connect().launch(world.request("1", FLEX))
    assert launched.state is CloudState.QUEUED
    assert world.clock.now() - before_seconds <= 1.0


def test_an_order_whose_time_is_over_ends_unlaunched(world: GcpWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1", FLEX))
    world.pass_time(7000.0)
    assert state(provider, launched.id) is CloudState.QUEUED
    world.pass_time(300.0)
    ended = find(provider, launched.id)
    assert ended is not None
    assert (ended.state, ended.launched_seconds) == (CloudState.TERMINATED, None)


def test_what_ran_while_nobody_looked_is_told_with_its_times(world: GcpWorld) -> None:
    """Read the times of an unlisted instance from its operations."""
    provider = world.connect()
    launched = provider.launch(world.request("1", FLEX))
    provider.instances()
    before_seconds = world.clock.now()
    world.give_capacity(FLEX)
    world.pass_time(600.0)
    world.take(launched.id)
    world.pass_time(60.0)
    world.faults.add(
        Fault("compute.zoneOperations.list", code="backendError", status=503, times=1)
    )
    assert state(provider, launched.id) is CloudState.QUEUED, "nobody knows yet"
    restarted = world.connect()
    restarted.instances()
    world.pass_time(60.0)
    ended = find(restarted, launched.id)
    assert ended is not None
    assert ended.state is CloudState.TERMINATED
    assert ended.launched_seconds is not None
    assert before_seconds < ended.launched_seconds < before_seconds + 60.0


def test_orders_that_wait_count_within_the_bounds(fake: FakeGcp, tmp_path: Path) -> None:
    world = gcp(fake, tmp_path, max_instances=1)
    provider = world.connect()
    provider.launch(world.request("1", FLEX))
    with pytest.raises(QuotaExceeded, match="max_instances: 1 of 1"):
        provider.launch(world.request("2", SMALL))


def test_the_price_is_cloud_billing_s_or_at_most_that_of_on_demand(
    fake: FakeGcp, tmp_path: Path
) -> None:
    world = gcp(fake, tmp_path, machine_types=["a2-highgpu-1g", "g2-standard-4"])
    offers = {offer.id: offer for offer in world.connect().offers()}
    assert offers[A100].usd_per_hour == pytest.approx(Decimal("2.02038"), abs=Decimal("1e-4"))
    assert offers[A100].price_source == "Cloud Billing catalogue"
    listed = offers[SMALL]
    assert offers[FLEX].usd_per_hour == listed.usd_per_hour
    assert offers[FLEX].price_source.startswith("on-demand, since no flex-start price is known")


def test_flex_start_counts_against_the_quota_of_spot(world: GcpWorld) -> None:
    limits = {limit.name: limit.offers or () for limit in world.connect().limits()}
    assert FLEX in limits["us-central1: PREEMPTIBLE_NVIDIA_L4_GPUS"]
    assert SMALL not in limits["us-central1: PREEMPTIBLE_NVIDIA_L4_GPUS"]


@pytest.mark.parametrize(
    ("scheduling", "said"),
    [
        ({"provisioningModel": "SPOT"}, "it launches SPOT: provisioningModel must be FLEX_START"),
        ({"maxRunDuration": {"seconds": "3600"}}, "instanceTerminationAction must be DELETE"),
        ({"instanceTerminationAction": "DELETE"}, "maxRunDuration is 0 s: it must be"),
        (
            {
                "instanceTerminationAction": "DELETE",
                "maxRunDuration": {"seconds": str(8 * 86400)},
            },
            "it must be 7 days at most",
        ),
    ],
)
def test_a_template_that_is_no_flex_start_is_not_used(
    world: GcpWorld, scheduling: dict[str, object], said: str
) -> None:
    world.add_template(
        "castor-gpu-flex-start", **{"provisioningModel": "FLEX_START", **scheduling}
    )
    provider = world.connect()
    assert FLEX not in [offer.id for offer in provider.offers()]
    assert said in provider.condition().left_out[FLEX]


class QueueWorld(ControlledWorld):
    """One deployment of which every job wants its instances on flex-start."""

    def __init__(self, fake: FakeGcp, kept: Path) -> None:
        self.called: list[str] = []
        self.gcp = gcp(fake, kept, max_instances=4)
        super().__init__(self.gcp)
        self.set_target(self.job, 2, FLEX)

    def restart(self) -> None:
        self.cloud: GcpProvider = self.gcp.connect(self.store.settings.controller_id())
        parts = ControllerParts(
            store=self.store,
            providers={"gcp": self.cloud},
            policy=self.policy,
            lighthouses=self.lighthouses,  # type: ignore[arg-type]
            workers=InlineWorkers(),
            clock=self.clock,
            user_data=lambda held: f"join {held.id}",
            on_capacity=lambda held: self.called.append(held.id),
        )
        self.controller = assemble(parts, self.settings)

    def tick(self, times: int = 1, seconds: float = 3.0, agents: bool = True) -> None:
        for _ in range(times):
            self.gcp.pass_time(seconds)
            self.report_from_agents()
            self.controller.tick(self.clock.now())

    def in_queue(self) -> list[HeldInstance]:
        alive = self.store.instances.alive()
        return [held for held in alive if held.phase is InstancePhase.QUEUED]

    def spent_usd(self) -> Decimal:
        return Ledger(self.store.ledger.entries()).total(self.clock.now())


@pytest.fixture
def controlled(fake: FakeGcp, tmp_path: Path) -> QueueWorld:
    return QueueWorld(fake, tmp_path)


def test_what_waits_costs_nothing_trains_in_its_turn_and_is_left_with_its_job(
    controlled: QueueWorld,
) -> None:
    """Restart the controller while the order waits."""
    other = controlled.submit("other")
    controlled.set_target(other, 1, FLEX)
    controlled.tick(times=3)
    assert len(controlled.in_queue()) == 3
    before = {held.cloud_id for held in controlled.in_queue()}
    controlled.restart()
    controlled.tick(times=20, seconds=100.0)
    assert {held.cloud_id for held in controlled.in_queue()} == before, "longer than agents have"
    assert controlled.spent_usd() == 0
    controlled.set_target(other, 0)
    controlled.tick(times=6)
    assert {held.job for held in controlled.in_queue()} == {controlled.job}
    assert set(controlled.gcp.alive()) == {held.cloud_id for held in controlled.in_queue()}
    controlled.gcp.give_capacity(FLEX, 2)
    launched_seconds = controlled.clock.now()
    controlled.until(lambda: len(controlled.training(controlled.job)) == 2)
    assert sorted(controlled.called) == sorted(
        held.id for held in controlled.training(controlled.job)
    )
    for held in controlled.training(controlled.job):
        assert held.launched_seconds is not None
        assert held.launched_seconds >= launched_seconds
    controlled.tick(times=40, seconds=90.0)
    price = controlled.training(controlled.job)[0].usd_per_hour
    assert controlled.spent_usd() == pytest.approx(2 * price, rel=Decimal("0.02"))
    controlled.set_target(controlled.job, 0)
    controlled.until(lambda: not controlled.store.instances.alive() and not controlled.gcp.alive())
    controlled.tick(times=5)
    assert not controlled.gcp.alive()
    assert len(controlled.gcp.project.history) == 3, "nothing was ordered twice"


def test_an_order_that_found_no_capacity_is_made_again_and_is_no_false_start(
    controlled: QueueWorld,
) -> None:
    controlled.set_target(controlled.job, 1, FLEX)
    controlled.until(lambda: len(controlled.in_queue()) == 1)
    (first,) = controlled.in_queue()
    for _ in range(4):
        controlled.tick(times=15, seconds=500.0)
    (later,) = controlled.in_queue()
    assert (later.slot, later.generation) == (first.slot, first.generation + 4)
    told = [each.kind for each in controlled.store.events.latest(controlled.job, limit=50)]
    assert told.count("order unfilled") == 4
    assert "false starts" not in told and "instance lost" not in told
    assert controlled.store.capacity.refusals() == {}
    assert controlled.spent_usd() == 0


def test_what_gets_capacity_as_it_is_left_is_billed_and_ended(controlled: QueueWorld) -> None:
    """The end was asked for, and its cloud gave it capacity nevertheless."""
    controlled.set_target(controlled.job, 1, FLEX)
    controlled.until(lambda: len(controlled.in_queue()) == 1)
    controlled.gcp.faults.add(
        Fault("compute.instances.delete", code="backendError", status=503, times=3)
    )
    controlled.set_target(controlled.job, 0)
    controlled.gcp.give_capacity(FLEX)
    controlled.until(lambda: not controlled.store.instances.alive() and not controlled.gcp.alive())
    (instance,) = controlled.store.instances.of_job(controlled.job, include_ended=True)
    assert instance.desired is Desired.ABSENT
    assert instance.launched_seconds is not None
    assert controlled.spent_usd() > 0


def test_a_stranger_in_the_queue_is_ended(controlled: QueueWorld) -> None:
    controlled.set_target(controlled.job, 0)
    controlled.tick(times=2)
    controller = controlled.store.settings.controller_id()
    stray = controlled.gcp.connect(controller)
    stray.launch(controlled.gcp.request("x", FLEX, controller=controller))
    controlled.until(lambda: not controlled.gcp.alive())
    assert any(each.kind == "orphan" for each in controlled.store.events.latest(None, limit=20))
    assert controlled.spent_usd() == 0
