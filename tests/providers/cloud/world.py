"""Interface of the clouds' fakes for shared tests; see `AwsWorld` and `GcpWorld`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from autoscaler.clock import VirtualClock
from autoscaler.domain.instance import LaunchRequest
from providers.base import Provider
from providers.cloud.known_prices import KnownPrices
from tests.fakes.faults import Faults


class FakeCloud(Protocol):
    """Account or project, its clock, and the infrastructure that Terraform would create.

    Attributes:
        provider_name: name of the provider in offers.
        spot_offer: id of a small spot offer.
        launch_action, list_action, end_action: actions of these calls, for faults.
        document: document of the pools, as Terraform would write it.
        prices: store of last known prices; None keeps them in memory.
        denied: code and status of a refusal for lack of permission.
    """

    clock: VirtualClock
    provider_name: str
    spot_offer: str
    launch_action: str
    list_action: str
    end_action: str
    denied: tuple[str, int]
    document: dict[str, Any]
    prices: KnownPrices | None

    @property
    def faults(self) -> Faults: ...

    @property
    def most_alive(self) -> int:
        """Largest number of instances billed at once."""
        ...

    @property
    def launched(self) -> int:
        """Number of instances launched so far."""
        ...

    def connect(self, controller: str) -> Provider: ...

    def pass_time(self, seconds: float) -> None: ...

    def request(self, token: str, offer: str = ..., controller: str = ...) -> LaunchRequest: ...

    def alive(self) -> Sequence[str]:
        """Return the ids of billed instances that nobody has ended."""
        ...

    def is_running(self, instance_id: str) -> bool: ...

    def reclaim(self, provider: Provider, instance_id: str) -> None: ...

    def put_message(self, body: str) -> None: ...

    def lag(self, lag_seconds: float, boot_seconds: float) -> None:
        """Set the time until lists show a new instance, and its boot time."""
        ...
