"""Instance of a simulated cloud, defined by the times of its events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.instance import CloudInstance, CloudState, Interruption, LaunchRequest
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.ledger.bill import amount


@dataclass(slots=True, eq=False)
class SimulatedInstance:
    """Instance whose state follows from the times of its events.

    Times are seconds of the clock; they may lie in the future or be infinite. `launched_seconds`
    is None while the instance is queued.
    """

    id: str
    controller: str
    request: LaunchRequest
    offer: Offer
    launched_seconds: float | None = None
    notice_seconds: float = math.inf
    end_seconds: float = math.inf
    _last_description: CloudInstance | None = field(default=None, init=False)

    @property
    def running_seconds(self) -> float:
        """Time when the boot is over; infinite while the instance is queued."""
        launched_seconds = math.inf if self.launched_seconds is None else self.launched_seconds
        return launched_seconds + self.offer.boot_seconds

    @property
    def is_spot(self) -> bool:
        """Whether the cloud may reclaim the instance."""
        return self.offer.purchase is Purchase.SPOT

    def launch(
        self, seconds: float, lifetime_seconds: float, notice_period_seconds: float
    ) -> None:
        """Set the times of the launch, the notice and the end; notice may be at the launch.

        The end of the offer ends the instance.
        """
        self.launched_seconds = seconds
        offer_ends_seconds = self.offer.until_seconds
        self.end_seconds = min(
            seconds + lifetime_seconds,
            math.inf if offer_ends_seconds is None else max(offer_ends_seconds, seconds),
        )
        self.notice_seconds = max(self.end_seconds - notice_period_seconds, seconds)

    def reclaim(self, notice_seconds: float, end_seconds: float) -> None:
        """Set the times of a reclaim. An earlier notice or end remains."""
        self.notice_seconds = min(self.notice_seconds, notice_seconds)
        self.end_seconds = min(self.end_seconds, end_seconds)

    def described(self, now_seconds: float) -> CloudInstance:
        """Return the instance as the cloud describes it at a time."""
        has_ended = self.end_seconds <= now_seconds
        state = CloudState.TERMINATED if has_ended else self._living_state(now_seconds)
        ended_seconds = self.end_seconds if has_ended else None
        last = self._last_description
        if last is not None and (last.state, last.ended_seconds) == (state, ended_seconds):
            return last
        self._last_description = CloudInstance(
            id=self.id,
            token=self.request.token,
            offer=self.offer.id,
            state=state,
            tags=self.request.tags,
            launched_seconds=self.launched_seconds,
            ended_seconds=ended_seconds,
        )
        return self._last_description

    def interruption(self, now_seconds: float) -> Interruption | None:
        """Return the reclaim notice; None before the time of the notice."""
        if self.notice_seconds > now_seconds:
            return None
        return Interruption(self.id, self.notice_seconds, self.end_seconds)

    def billed_usd(self, now_seconds: float) -> Decimal:
        """Return the cost up to a time in US dollars, including the boot and the minimum."""
        if self.launched_seconds is None:
            return Decimal(0)
        held_seconds = min(self.end_seconds, now_seconds) - self.launched_seconds
        return amount(self.offer.usd_per_hour, held_seconds, self.offer.minimum_billed_seconds)

    def _living_state(self, now_seconds: float) -> CloudState:
        if self.launched_seconds is None:
            return CloudState.QUEUED
        is_running = self.running_seconds <= now_seconds
        return CloudState.RUNNING if is_running else CloudState.PENDING
