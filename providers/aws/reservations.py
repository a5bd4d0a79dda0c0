"""Capacity reservations of EC2: on-demand ones and Capacity Blocks for ML.

Either kind is described by DescribeCapacityReservations and bought outside of the deployment. An
open on-demand reservation is billed whether it is used or not, and a block was paid for in
advance, so an instance in either costs no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from providers.aws.calls import RegionCalls
from providers.aws.settings import PoolForm
from providers.cloud.replies import readable
from providers.cloud.reservations import Reservation, moment

CAPACITY_BLOCK: Final = "capacity-block"
# EC2 begins to end the instances of a block half an hour before the block's end ("Capacity Blocks
# for ML", Amazon EC2 User Guide).
_BLOCK_EVICTION_SECONDS: Final = 30 * 60.0
_ACTIVE: Final = "active"
_SCHEDULED: Final = "scheduled"  # of those before the start, the only one that is sure to begin
_BEFORE_START: Final = (_SCHEDULED, "payment-pending", "pending", "assessing", "delayed")


def reservations_of(
    calls: RegionCalls, pools: Mapping[str, PoolForm], account: str | None
) -> dict[str, Reservation]:
    """Return the reservations of a region's pools, by pool.

    One that the pool's template does not target is closed: instances would run on demand.
    `account` is the one that is billed for the deployment's instances; None if it is unknown.

    Raises:
        ProviderError: the reservations or the templates can't be read.
    """
    described_by_id: dict[str, Mapping[str, Any]] = {}
    for page in calls.pages("DescribeCapacityReservations"):
        with readable(f"{calls.region}: DescribeCapacityReservations"):
            for described in page["CapacityReservations"]:
                described_by_id[described["CapacityReservationId"]] = described
    reservations = {}
    for name, pool in pools.items():
        if pool.reservation in described_by_id:
            template_error = _template_error(calls, pool)
            with readable(f"{calls.region}: DescribeCapacityReservations"):
                described = described_by_id[pool.reservation]
                closed = _closed_reason(described, pool, account) or template_error
                reservations[name] = _reservation(described, closed)
    return reservations


def _template_error(calls: RegionCalls, pool: PoolForm) -> str | None:
    """Return why a pool's template launches elsewhere than into its reservation; None if not."""
    template = pool.launch_template
    reply = calls.describe(
        "DescribeLaunchTemplateVersions", LaunchTemplateId=template.id, Versions=[template.version]
    )
    with readable(f"{calls.region}: DescribeLaunchTemplateVersions"):
        data = reply["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    if target.get("CapacityReservationId") != pool.reservation:
        return f"is not the target of {template.id}: apply Terraform again"
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    if (market == CAPACITY_BLOCK) is not pool.capacity_block:
        return f"has another market in {template.id}, {market}: apply Terraform again"
    return None


def _reservation(described: Mapping[str, Any], closed: str | None) -> Reservation:
    end = described.get("EndDate")
    until_seconds = None if end is None else end.timestamp()
    state, begins_seconds = described["State"], None
    if closed is None and state in _BEFORE_START:
        start = described.get("StartDate")  # not known of each state
        start_seconds = None if start is None else start.timestamp()
        when = "has no begin yet" if start_seconds is None else f"begins {moment(start_seconds)}"
        closed = f"{when} ({state})"
        begins_seconds = start_seconds if state == _SCHEDULED else None
    if _is_block(described) and until_seconds is not None:
        until_seconds -= _BLOCK_EVICTION_SECONDS
    return Reservation(
        described["InstanceType"],
        described["AvailabilityZone"],
        described["TotalInstanceCount"],
        described["AvailableInstanceCount"],
        until_seconds,
        closed,
        is_over=state not in (*_BEFORE_START, _ACTIVE),
        begins_seconds=begins_seconds,
    )


def _closed_reason(
    described: Mapping[str, Any], pool: PoolForm, account: str | None
) -> str | None:
    state, is_block = described["State"], _is_block(described)
    if is_block is not pool.capacity_block:
        kind, flag = ("a Capacity Block", "true") if is_block else ("no Capacity Block", "false")
        return f"is {kind}: set capacity_block = {flag}"
    if described.get("Interruptible"):
        return "is interruptible: EC2 takes its instances back, which no pool expects"
    if state not in (*_BEFORE_START, _ACTIVE):
        return f"is {state}: remove the pool, or name another reservation"
    if is_block:
        return None if described.get("EndDate") else "has no end, as every Capacity Block should"
    payer = described.get("UnusedReservationBillingOwnerId") or described["OwnerId"]
    if account is not None and payer != account:
        return f"is billed to account {payer} while unused, so using it would cost this account"
    return None


def _is_block(described: Mapping[str, Any]) -> bool:
    return bool(described.get("ReservationType") == CAPACITY_BLOCK)
