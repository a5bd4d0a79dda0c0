"""What tests need of the fake of a cloud, whichever it is: `AwsWorld` and `GcpWorld`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from autoscaler.clock import VirtualClock
from autoscaler.domain.instance import LaunchRequest
from providers.base import Provider
from providers.cloud.known_prices import KnownPrices
from tests.fakes.faults import Faults


class FakeCloud(Protocol):
    """One account or project, its clock, and the ground that Terraform would lay.

    Attributes:
        provider_name: as offers tell it.
        spot_offer: a small offer on spot.
        launch_action, list_action, end_action: the calls that do these, as faults name them.
        document: the settings of its pools, as Terraform would write them.
        prices: what keeps last known prices; None for memory.
        denied: the code and the status of a refusal for want of permission.
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
        """So many were paid for at once."""
        ...

    @property
    def launched(self) -> int:
        """So many ever ran."""
        ...

    def connect(self, controller: str) -> Provider: ...

    def pass_time(self, seconds: float) -> None: ...

    def request(self, token: str, offer: str = ..., controller: str = ...) -> LaunchRequest: ...

    def alive(self) -> Sequence[str]:
        """The ids of what is paid for and nobody has ended."""
        ...

    def is_running(self, instance_id: str) -> bool: ...

    def reclaim(self, provider: Provider, instance_id: str) -> None: ...

    def put_message(self, body: str) -> None: ...

    def lag(self, lag_seconds: float, boot_seconds: float) -> None:
        """New instances are unlisted for so long, and boot for so long."""
        ...
