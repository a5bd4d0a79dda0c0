"""One instance of a simulated cloud: the moments of its life."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.instance import CloudInstance, CloudState, Interruption, LaunchRequest
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.ledger.bill import amount


@dataclass(slots=True, eq=False)
class SimulatedInstance:
    """What it is at a moment follows from its moments, which may lie ahead or be infinite.

    One without a launch is in a queue.
    """

    id: str
    controller: str
    request: LaunchRequest
    offer: Offer
    launched_seconds: float | None = None
    notice_seconds: float = math.inf
    end_seconds: float = math.inf
    _told: CloudInstance | None = field(default=None, init=False)

    @property
    def running_seconds(self) -> float:
        """When its boot is over."""
        launched_seconds = math.inf if self.launched_seconds is None else self.launched_seconds
        return launched_seconds + self.offer.boot_seconds

    @property
    def is_spot(self) -> bool:
        """Whether the cloud may take it back."""
        return self.offer.purchase is Purchase.SPOT

    def launch(
        self, seconds: float, lifetime_seconds: float, notice_period_seconds: float
    ) -> None:
        """There is capacity for it from then on; notice may be given at once."""
        self.launched_seconds = seconds
        self.end_seconds = seconds + lifetime_seconds
        self.notice_seconds = max(self.end_seconds - notice_period_seconds, seconds)

    def reclaim(self, notice_seconds: float, end_seconds: float) -> None:
        """Take it back: an earlier notice or end stands."""
        self.notice_seconds = min(self.notice_seconds, notice_seconds)
        self.end_seconds = min(self.end_seconds, end_seconds)

    def described(self, now_seconds: float) -> CloudInstance:
        """What the cloud tells of it at that moment."""
        has_ended = self.end_seconds <= now_seconds
        state = CloudState.TERMINATED if has_ended else self._living_state(now_seconds)
        ended_seconds = self.end_seconds if has_ended else None
        told = self._told
        if told is not None and (told.state, told.ended_seconds) == (state, ended_seconds):
            return told
        self._told = CloudInstance(
            id=self.id,
            token=self.request.token,
            offer=self.offer.id,
            state=state,
            tags=self.request.tags,
            launched_seconds=self.launched_seconds,
            ended_seconds=ended_seconds,
        )
        return self._told

    def interruption(self, now_seconds: float) -> Interruption | None:
        """Its notice, once it is given; until then None."""
        if self.notice_seconds > now_seconds:
            return None
        return Interruption(self.id, self.notice_seconds, self.end_seconds)

    def billed_usd(self, now_seconds: float) -> Decimal:
        """What it costs up to that moment, boot and minimum included."""
        if self.launched_seconds is None:
            return Decimal(0)
        held_seconds = min(self.end_seconds, now_seconds) - self.launched_seconds
        return amount(self.offer.usd_per_hour, held_seconds, self.offer.minimum_billed_seconds)

    def _living_state(self, now_seconds: float) -> CloudState:
        if self.launched_seconds is None:
            return CloudState.QUEUED
        is_running = self.running_seconds <= now_seconds
        return CloudState.RUNNING if is_running else CloudState.PENDING
