"""Capacity reservations and Capacity Blocks of an account, which moto lacks.

The refusals are EC2's error codes ("Error codes for the Amazon EC2 API"): a reservation without
compatible and available capacity is `ReservationCapacityExceeded`, a block before its start
`InvalidCapacityReservationState.PendingActivation`, an unknown one
`InvalidCapacityReservationId.NotFound`. The rules for a fleet of a block are those of the Amazon
EC2 User Guide ("Configure your EC2 Fleet to launch instances into Capacity Blocks"): the market
type in its template, the same type of capacity in the request, and no
`CapacityReservationOptions`. EC2's code for other requests is not documented.

The durations of blocks for sale are those of botocore's model (`CapacityDurationHours`). An
unknown block is `InvalidCapacityBlockOfferingIdNotFound`. Tags belong to a `capacity-reservation`,
as in Terraform's provider.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

BLOCK = "capacity-block"
_NO_CAPACITY = (
    "The requested reservation does not have sufficient compatible and available capacity for "
    "this request."
)
Refusal = tuple[str, str]
"""Code and message."""


@dataclass(frozen=True, slots=True)
class FakeBlock:
    """Block for sale, as DescribeCapacityBlockOfferings lists it."""

    id: str
    kind: str
    zone: str
    total: int
    start_seconds: float
    hours: int
    fee: str
    currency: str = "USD"
    segments: int = 1

    @property
    def end_seconds(self) -> float:
        return self.start_seconds + self.hours * 3600

    def fits(self, parameters: Mapping[str, str]) -> bool:
        """Return whether the block matches a call."""
        first, last = parameters.get("StartDateRange"), parameters.get("EndDateRange")
        return (
            self.kind == parameters["InstanceType"]
            and self.total == int(parameters["InstanceCount"])
            and self.hours == int(parameters["CapacityDurationHours"])
            and (first is None or self.start_seconds >= _seconds(first))
            and (last is None or self.end_seconds <= _seconds(last))
        )

    def described(self) -> str:
        fields = {
            "capacityBlockOfferingId": self.id,
            "instanceType": self.kind,
            "availabilityZone": self.zone,
            "instanceCount": self.total,
            "startDate": _moment(self.start_seconds),
            "endDate": _moment(self.end_seconds),
            "capacityBlockDurationHours": self.hours,
            "upfrontFee": self.fee,
            "currencyCode": self.currency,
            "tenancy": "default",
            "capacityBlockOfferingSegmentSet": "<item/>" * self.segments,
        }
        return "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())


def is_unsold_duration(parameters: Mapping[str, str]) -> bool:
    """Return whether EC2 sells no block of the requested length."""
    days, rest = divmod(int(parameters["CapacityDurationHours"]), 24)
    return bool(rest) or not (0 < days <= 14 or (days <= 182 and days % 7 == 0))


@dataclass(slots=True)
class FakeReservation:
    """Reservation; `others` of its instances belong to other users.

    `waiting` is the state before the start: `payment-pending` for a block whose fee is not yet
    processed (botocore's model).
    """

    id: str
    kind: str
    zone: str
    total: int
    is_block: bool = False
    start_seconds: float = 0.0
    end_seconds: float | None = None
    others: int = 0
    is_cancelled: bool = False
    waiting: str = "scheduled"
    owner: str | None = None
    is_interruptible: bool = False
    instances: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)

    def state(self, now_seconds: float) -> str:
        if self.is_cancelled:
            return "cancelled"
        if now_seconds < self.start_seconds:
            return self.waiting
        has_ended = self.end_seconds is not None and now_seconds >= self.end_seconds
        return "expired" if has_ended else "active"

    def free(self, ended: Iterable[str]) -> int:
        return self.total - self.others - len(self.instances - set(ended))

    def refusal(
        self, kind: str, zone: str, ended: Iterable[str], now_seconds: float
    ) -> Refusal | None:
        """Return the refusal of an instance of a type in a zone; None if it can be launched."""
        state = self.state(now_seconds)
        if state == self.waiting:
            text = f"Your Capacity Block reservation {self.id} is not active yet."
            return "InvalidCapacityReservationState.PendingActivation", text
        is_fit = (kind, zone) == (self.kind, self.zone) and self.free(ended) > 0
        return (
            None if state == "active" and is_fit else ("ReservationCapacityExceeded", _NO_CAPACITY)
        )

    def described(self, number: str, ended: Iterable[str], now_seconds: float) -> str:
        """Return the item of DescribeCapacityReservations, with the names of botocore's model."""
        end = self.end_seconds
        fields = {
            "capacityReservationId": self.id,
            "ownerId": self.owner or number,
            "instanceType": self.kind,
            "instancePlatform": "Linux/UNIX",
            "availabilityZone": self.zone,
            "tenancy": "default",
            "totalInstanceCount": self.total,
            "availableInstanceCount": self.free(ended),
            "state": self.state(now_seconds),
            "startDate": _moment(self.start_seconds),
            **({} if end is None else {"endDate": _moment(end)}),
            "endDateType": "unlimited" if end is None else "limited",
            "instanceMatchCriteria": "targeted",
            "reservationType": BLOCK if self.is_block else "default",
            "interruptible": str(self.is_interruptible).lower(),
        }
        return "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())


def invalid_fleet(
    reservation: FakeReservation | None, market: str, parameters: Mapping[str, str]
) -> Refusal | None:
    """Return the refusal of a fleet that does not fit its reservation; None for a valid one."""
    capacity_type = parameters.get("TargetCapacitySpecification.DefaultTargetCapacityType", "")
    is_block = reservation is not None and reservation.is_block
    if {is_block, market == BLOCK, capacity_type == BLOCK} == {True, False}:
        text = "A Capacity Block needs the market type and the target capacity capacity-block."
        return "InvalidParameterCombination", text
    if is_block and any("CapacityReservationOptions" in name for name in parameters):
        text = "CapacityReservationOptions can't be used with capacity-block."
        return "InvalidParameterCombination", text
    return None


def target_of(template: str) -> tuple[str, str]:
    """Return the reservation and market type in a reply of DescribeLaunchTemplateVersions."""
    reservation = re.search(r"<capacityReservationId>(.+?)</capacityReservationId>", template)
    market = re.search(r"<marketType>(.+?)</marketType>", template)
    return reservation[1] if reservation else "", market[1] if market else ""


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
