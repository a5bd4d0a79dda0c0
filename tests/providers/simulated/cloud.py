"""Simulated cloud and clock for one test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from autoscaler.clock import VirtualClock
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, CloudState, LaunchRequest
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from providers.base import Provider
from providers.simulated.capacity import CapacityTrace
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings
from tests.conformance.provider import OURS, THEIRS, order

START_SECONDS = 1_750_000_000.0
BOOT_SECONDS = 60.0
NOTICE_SECONDS = 120.0


def offer(name: str = "lasting", purchase: Purchase = Purchase.ON_DEMAND, **facts: Any) -> Offer:
    return Offer(
        **{
            "id": name,
            "provider": "simulated",
            "instance_type": "small",
            "zone": "nowhere-1",
            "purchase": purchase,
            "devices": 1,
            "device_kind": "t4",
            "usd_per_hour": Decimal("0.526"),
            "boot_seconds": BOOT_SECONDS,
            "network_bytes_per_second": 1e9,
            **facts,
        }
    )


def spot(name: str = "spot", **facts: Any) -> Offer:
    return offer(name, Purchase.SPOT, **{"usd_per_hour": Decimal("0.158"), **facts})


def trace(*counts: int, gap_seconds: float = 300.0) -> CapacityTrace:
    """Return a trace that begins at the start of the tests' clock."""
    return CapacityTrace(gap_seconds, counts, offset_seconds=-START_SECONDS)


FOUR_DEVICES = Limit("devices", LimitUnit.DEVICES, 4)


class SimulatedWorld:
    """Cloud and clock, for `tests.conformance.provider` and the tests of this folder."""

    def __init__(self, *offers: Offer, **settings: Any) -> None:
        self.clock = VirtualClock(START_SECONDS)
        self.cloud = SimulatedCloud(SimulatedSettings(offers, **settings), self.clock)
        self.ours = self.connect(OURS)

    def connect(self, controller: str) -> SimulatedProvider:
        return SimulatedProvider(self.cloud, controller)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Advance the time from event to event until a condition holds."""
        while not condition():
            moment = self.cloud.next_event_seconds()
            assert moment is not None, "no event is left"
            self.clock.advance(moment - self.clock.now())

    def exhaust(self, provider: Provider) -> str:
        for token in range(int(FOUR_DEVICES.maximum)):
            provider.launch(order(provider, f"fill-{token}"))
        return order(provider, "any").offer

    def give_capacity(self, offer_id: str) -> None:
        """Do nothing, because the trace has capacity as time passes."""

    def reclaim(self, provider: Provider, instance_id: str) -> None:
        assert isinstance(provider, SimulatedProvider)
        provider.reclaim(instance_id)

    def remains(self, instance_id: str) -> Sequence[CloudInstance]:
        everyone = [self.connect(controller) for controller in (OURS, THEIRS)]
        return [
            instance
            for provider in everyone
            for instance in provider.instances()
            if instance.id == instance_id and instance.state is not CloudState.TERMINATED
        ]

    def launch(self, offer_id: str, token: str) -> str:
        tags = {CONTROLLER_TAG: OURS}
        return self.ours.launch(LaunchRequest(token, offer_id, tags, user_data="")).id

    def alive(self) -> list[str]:
        return [
            instance.id for instance in self.ours.instances() if instance.ended_seconds is None
        ]

    def noticed(self) -> list[str]:
        return [notice.instance for notice in self.ours.interruptions()]

    @property
    def elapsed_seconds(self) -> float:
        return self.clock.now() - START_SECONDS
