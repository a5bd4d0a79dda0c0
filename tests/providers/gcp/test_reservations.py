"""Pools of reserved capacity: what they cost, how many instances fit, and until when."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.errors import InsufficientCapacity, NotFound, ProviderError
from autoscaler.domain.offer import Offer, Purchase
from providers.gcp.provider import GcpProvider
from providers.gcp.settings import CallTimeouts
from tests.fakes.faults import Fault
from tests.fakes.gcp.reservations import BOUND, NAME_KEY, FakeReservation, reserve
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import START_SECONDS, ZONES, GcpWorld, error_of

OFFER = "own/g2-standard-4/us-central1-a/reserved"
DAY = 86400.0


class ReservedWorld(GcpWorld):
    """A project with one reservation, and a pool of it."""

    def __init__(
        self,
        fake: FakeGcp,
        kept: Path,
        pool: dict[str, Any] | None = None,
        is_bound: bool = False,
        **facts: Any,
    ) -> None:
        super().__init__(fake, kept)
        given = {"name": "own", "zone": ZONES[0], "kind": "g2-standard-4", "total": 2, **facts}
        given.setdefault("created_seconds", START_SECONDS)
        self.reservation = FakeReservation(**given)
        reserve(self.project, self.reservation)
        gpu = self.document["pools"]["gpu"]
        self.document["pools"]["own"] = {
            **gpu,
            "templates": {"reserved": self.reserved_template("own", is_bound)},
            "machine_types": ["g2-standard-4"],
            "zones": [ZONES[0]],
            "purchases": "reserved",
            "reservation": "own",
            **(pool or {}),
        }

    def reserved_template(self, reservation: str, is_bound: bool) -> str:
        """Return a template as Terraform would create it."""
        bound = {"instanceTerminationAction": "DELETE"} if is_bound else {}
        model = BOUND if is_bound else "STANDARD"
        link = self.add_template("castor-own", provisioningModel=model, **bound)
        self.project.templates["castor-own"]["properties"]["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": NAME_KEY,
            "values": [reservation],
        }
        return link

    def fitting(self, provider: GcpProvider) -> float | None:
        """Return the planner's limit of instances; None without a limit."""
        provider.offers()
        limits = {one.name: one for one in provider.limits()}
        limit = limits.get(f"reservation own in {ZONES[0]}")
        assert limit is None or limit.offers == {OFFER}
        return None if limit is None else limit.maximum

    def later(self, provider: GcpProvider) -> float | None:
        """The same once the reservation is asked for again."""
        self.pass_time(CallTimeouts().reservations_seconds)
        return self.fitting(provider)


def offer_of(provider: GcpProvider) -> Offer | None:
    return next((one for one in provider.offers() if one.id == OFFER), None)


def reason_of(provider: GcpProvider) -> str:
    assert offer_of(provider) is None
    return provider.condition().left_out[OFFER]


def refused(world: ReservedWorld, provider: GcpProvider, token: str = "1") -> ProviderError:
    return error_of(lambda: provider.launch(world.request(token, OFFER)))


def test_what_is_reserved_costs_its_extras_only(fake: FakeGcp, tmp_path: Path) -> None:
    world = ReservedWorld(fake, tmp_path, {"extras_usd_per_hour": "0.0288"})
    offer = offer_of(world.connect())
    assert offer is not None and offer.purchase is Purchase.RESERVED
    assert offer.is_paid and offer.usd_per_hour == Decimal("0.0288")
    assert offer.until_seconds is None
    assert offer.price_source == "reservation own: paid already"


def test_as_many_fit_as_are_free_and_as_are_held(fake: FakeGcp, tmp_path: Path) -> None:
    world = ReservedWorld(fake, tmp_path, total=3, others=1)
    provider = world.connect()
    assert world.fitting(provider) == 2
    provider.launch(world.request("1", OFFER))
    assert world.fitting(provider) == 2
    assert world.later(provider) == 2
    world.reservation.others = 3
    assert world.later(provider) == 1


def test_quotas_do_not_bound_what_the_reservation_counts_in(fake: FakeGcp, tmp_path: Path) -> None:
    world = ReservedWorld(fake, tmp_path)
    world.project.quotas["us-central1", "NVIDIA_L4_GPUS"] = 0.0
    provider = world.connect()
    provider.offers()
    bounds = {one.name: one for one in provider.limits() if OFFER in (one.offers or ())}
    assert not [name for name in bounds if "NVIDIA" in name]
    assert any(name.endswith("INSTANCES") for name in bounds)
    provider.launch(world.request("1", OFFER))


def test_a_launch_never_goes_beyond_the_reservation(fake: FakeGcp, tmp_path: Path) -> None:
    world = ReservedWorld(fake, tmp_path, total=1)
    provider = world.connect()
    provider.launch(world.request("1", OFFER))
    assert isinstance(refused(world, provider, "2"), InsufficientCapacity)
    assert len(world.alive()) == 1


@pytest.mark.parametrize("ends", [{"end_seconds": START_SECONDS + DAY}, {"lasts_seconds": 86400}])
@pytest.mark.parametrize("is_bound", [True, False])
def test_a_reservation_that_ends_is_used_until_then(
    fake: FakeGcp, tmp_path: Path, ends: dict[str, Any], is_bound: bool
) -> None:
    world = ReservedWorld(fake, tmp_path, is_bound=is_bound, **ends)
    offer = offer_of(world.connect())
    assert offer is not None and offer.until_seconds == START_SECONDS + DAY


@pytest.mark.parametrize("is_bound", [True, False])
def test_what_runs_in_an_ended_reservation_is_left(
    fake: FakeGcp, tmp_path: Path, is_bound: bool
) -> None:
    """Compute Engine ends bound instances, and bills others on demand from then on."""
    world = ReservedWorld(fake, tmp_path, is_bound=is_bound, end_seconds=START_SECONDS + 600)
    provider = world.connect()
    provider.launch(world.request("1", OFFER))
    world.pass_time(630)
    provider.instances()
    assert bool(world.alive()) is not is_bound
    if is_bound:
        assert "does not exist in us-central1" in reason_of(provider)
    else:
        offer = offer_of(provider)
        assert offer is not None and offer.until_seconds is not None
        assert offer.until_seconds <= world.clock.now()


@pytest.mark.parametrize("is_denied", [True, False])
def test_what_runs_stays_while_nothing_can_be_launched(
    fake: FakeGcp, tmp_path: Path, is_denied: bool
) -> None:
    """Keep instances while the reservation changes or templates can't be read."""
    world = ReservedWorld(fake, tmp_path, total=4)
    provider = world.connect()
    provider.launch(world.request("1", OFFER))
    if is_denied:
        action = "compute.instanceTemplates.get"
        world.faults.add(Fault(action, code="forbidden", status=403, times=None))
        world.pass_time(CallTimeouts().facts_seconds)
    else:
        world.reservation.status = "UPDATING"
    assert world.later(provider) == 1
    offer = offer_of(provider)
    assert offer is not None and offer.until_seconds is None
    assert "paid already" not in offer.price_source


@pytest.mark.parametrize(
    ("facts", "pool", "said"),
    [
        ({"status": "CREATING"}, {}, "is CREATING, not READY"),
        ({"total": 0}, {}, "is of no specific machine type"),
        ({"kind": "g2-standard-8"}, {}, "is of g2-standard-8 in us-central1-a, not g2-standard-4"),
        ({"zone": ZONES[1]}, {}, "does not exist in us-central1"),
    ],
)
def test_what_can_not_be_used_is_left_out_with_the_reason(
    fake: FakeGcp, tmp_path: Path, facts: dict[str, Any], pool: dict[str, Any], said: str
) -> None:
    provider = ReservedWorld(fake, tmp_path, pool, **facts).connect()
    assert said in reason_of(provider)
    assert not [one for one in provider.limits() if one.name.startswith("reservation")]


@pytest.mark.parametrize(
    "affinity",
    [
        {},
        {"consumeReservationType": "ANY_RESERVATION"},
        {"consumeReservationType": "SPECIFIC_RESERVATION", "key": NAME_KEY, "values": ["other"]},
    ],
)
def test_a_template_that_launches_elsewhere_would_buy_on_demand(
    fake: FakeGcp, tmp_path: Path, affinity: dict[str, Any]
) -> None:
    world = ReservedWorld(fake, tmp_path)
    world.project.templates["castor-own"]["properties"]["reservationAffinity"] = affinity
    reason = "reservationAffinity must be SPECIFIC_RESERVATION of own"
    assert reason in reason_of(world.connect())


def test_a_template_that_can_not_be_read_is_not_trusted(fake: FakeGcp, tmp_path: Path) -> None:
    """Elsewhere it is; but here an instance counts as paid already."""
    world = ReservedWorld(fake, tmp_path)
    denied = Fault("compute.instanceTemplates.get", code="forbidden", status=403, times=9)
    world.faults.add(denied)
    assert "has a template that can't be read" in reason_of(world.connect())


def test_bound_instances_must_be_deleted_at_the_end(fake: FakeGcp, tmp_path: Path) -> None:
    world = ReservedWorld(fake, tmp_path, is_bound=True)
    scheduling = world.project.templates["castor-own"]["properties"]["scheduling"]
    del scheduling["instanceTerminationAction"]
    assert "instanceTerminationAction must be DELETE" in reason_of(world.connect())


def test_an_n1_is_reserved_with_its_accelerators(fake: FakeGcp, tmp_path: Path) -> None:
    t4 = {"type": "nvidia-tesla-t4", "count": 2}
    pool = {"machine_types": ["n1-standard-8"], "accelerator": t4}
    facts = {"kind": "n1-standard-8", "accelerators": {"nvidia-tesla-t4": 2}}
    world = ReservedWorld(fake, tmp_path, pool, **facts)
    ids = [one.id for one in world.connect().offers() if one.purchase is Purchase.RESERVED]
    assert ids == ["own/n1-standard-8+2xt4/us-central1-a/reserved"]
    other = ReservedWorld(fake, tmp_path, pool, **facts | {"accelerators": {"nvidia-tesla-t4": 1}})
    (reason,) = other_reasons(other.connect())
    assert "is of n1-standard-8+1xt4 in us-central1-a" in reason


def other_reasons(provider: GcpProvider) -> list[str]:
    provider.offers()
    return [why for key, why in provider.condition().left_out.items() if key.startswith("own/")]


def test_without_a_reserved_pool_nothing_is_asked(world: GcpWorld) -> None:
    """Its permission came later than others, and earlier roles lack it."""
    provider = world.connect()
    provider.offers()
    provider.limits()
    assert world.project.calls["compute.reservations.get"] == 0


class TestWhatComputeEngineRefuses:
    """Whatever the settings say: a reservation that has changed since."""

    @pytest.mark.parametrize("status", ["UPDATING", "DELETING"])
    def test_one_that_is_not_ready(self, fake: FakeGcp, tmp_path: Path, status: str) -> None:
        world = ReservedWorld(fake, tmp_path)
        provider = world.connect()
        provider.offers()
        world.reservation.status = status
        assert isinstance(refused(world, provider), InsufficientCapacity)

    def test_another_type(self, fake: FakeGcp, tmp_path: Path) -> None:
        world = ReservedWorld(fake, tmp_path)
        provider = world.connect()
        provider.offers()
        world.reservation.kind = "g2-standard-8"
        error = refused(world, provider)
        assert isinstance(error, NotFound) and "correct pools.own.reservation" in str(error)

    def test_one_that_is_gone(self, fake: FakeGcp, tmp_path: Path) -> None:
        world = ReservedWorld(fake, tmp_path)
        provider = world.connect()
        provider.offers()
        world.project.reservations.clear()
        error = refused(world, provider)
        assert isinstance(error, NotFound) and "correct pools.own.reservation" in str(error)
        assert not world.alive()
