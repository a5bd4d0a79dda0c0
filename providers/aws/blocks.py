"""Market of Capacity Blocks for ML, for `castor buy`.

The controller buys no block: its role lacks the permission, and nothing else imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import boto3

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.market.catalogue import catalogue
from providers.aws.calls import RegionCalls, call_budget
from providers.aws.settings import AwsSettings, CallTimeouts
from providers.blocks import BlockOffering, BlockSearch
from providers.cloud.asking import map_concurrently
from providers.cloud.bills import amount_of
from providers.cloud.replies import readable
from providers.cloud.tags import DEPLOYMENT_TAG

_CURRENCY: Final = "USD"
# Durations and sizes that DescribeCapacityBlockOfferings takes, as botocore's model has them.
_MAX_DAYS: Final = 14
_MAX_WEEKS: Final = 26
_MAX_INSTANCES: Final = 64


class CapacityBlocks:
    """Capacity Blocks in the regions of `settings`, with the credentials of `session`."""

    def __init__(
        self,
        settings: AwsSettings,
        session: boto3.session.Session,
        clock: Clock,
        patience: CallTimeouts = CallTimeouts(),
    ) -> None:
        self._settings = settings
        budget = call_budget(clock)
        self._calls = {
            region: RegionCalls(region, settings, patience, session, budget)
            for region in settings.regions
        }

    def offerings(self, search: BlockSearch) -> Sequence[BlockOffering]:
        """Return the blocks that fit a search; see `BlockMarket.offerings`.

        EC2 names a few of them, those that begin first.
        """
        devices = _check_search(search)
        parameters: dict[str, Any] = {
            "InstanceType": search.instance_type,
            "InstanceCount": search.instances,
            "CapacityDurationHours": search.hours,
        }
        for name, seconds in (
            ("StartDateRange", search.from_seconds),
            ("EndDateRange", search.to_seconds),
        ):
            if seconds is not None:
                parameters[name] = datetime.fromtimestamp(seconds, UTC)

        def of_region(calls: RegionCalls) -> list[BlockOffering]:
            region_offerings = []
            for page in calls.pages("DescribeCapacityBlockOfferings", **parameters):
                with readable(f"{calls.region}: DescribeCapacityBlockOfferings"):
                    for described in page["CapacityBlockOfferings"]:
                        # A block of several segments has several reservations.
                        if len(described.get("CapacityBlockOfferingSegments", ())) <= 1:
                            region_offerings.append(_offering(described, calls.region, devices))
            return region_offerings

        by_region = map_concurrently(of_region, self._calls.values())
        offerings = [offering for region in by_region for offering in region]
        return sorted(offerings, key=lambda offering: (offering.usd, offering.starts_seconds))

    def buy(self, offering: BlockOffering) -> str:
        """Buy a block; see `BlockMarket.buy`.

        The block has the deployment's tag, by which AWS can assign its price to the deployment.
        """
        tags = {**self._settings.tags, DEPLOYMENT_TAG: self._settings.deployment}
        calls = self._calls[offering.region]
        reply = calls.purchase_block(
            CapacityBlockOfferingId=offering.id,
            InstancePlatform="Linux/UNIX",
            TagSpecifications=[
                {
                    "ResourceType": "capacity-reservation",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
        )
        with readable(f"{offering.region}: PurchaseCapacityBlock"):
            return str(reply["CapacityReservation"]["CapacityReservationId"])

    def pool_input(self, offering: BlockOffering, reservation: str) -> str:
        """Return the pool of a bought block; see `BlockMarket.pool_input`."""
        return f"""block = {{
  image_id         = "ami-..." # as in your other pools
  instance_types   = ["{offering.instance_type}"]
  purchases        = ["reserved"]
  reservation      = "{reservation}"
  capacity_block   = true
  zones            = ["{offering.zone}"]
  max_instances    = {offering.instances}
  max_usd_per_hour = 1 # for volumes and addresses
}}"""


def _check_search(search: BlockSearch) -> int:
    """Return the number of devices of an instance of a search that EC2 can answer.

    Raises:
        SpecError: EC2 sells no block of that type, size or time.
    """
    entry = catalogue().get(search.instance_type)
    if entry is None:
        raise SpecError(
            f"{search.instance_type} is unknown: write a type of EC2 with GPUs, such as "
            "p5.48xlarge",
            "--type",
        )
    days = search.hours // 24
    if days > _MAX_DAYS and (days % 7 != 0 or days > 7 * _MAX_WEEKS):
        raise SpecError(
            f"EC2 sells blocks of 1 to {_MAX_DAYS} days, or of whole weeks up to {_MAX_WEEKS}: "
            f"{days} days are neither",
            "--days",
        )
    if search.instances > _MAX_INSTANCES:
        raise SpecError(f"a block has at most {_MAX_INSTANCES} instances", "--instances")
    return entry.devices


def _offering(described: Mapping[str, Any], region: str, devices: int) -> BlockOffering:
    """Return an offering from its description.

    Raises:
        KeyError, ValueError, ...: see `providers.cloud.replies.readable`.
    """
    if described["CurrencyCode"] != _CURRENCY:
        raise ValueError(f"a price in {described['CurrencyCode']}, not {_CURRENCY}")
    return BlockOffering(
        id=described["CapacityBlockOfferingId"],
        region=region,
        zone=described["AvailabilityZone"],
        instance_type=described["InstanceType"],
        instances=described["InstanceCount"],
        devices=devices,
        starts_seconds=described["StartDate"].timestamp(),
        ends_seconds=described["EndDate"].timestamp(),
        usd=amount_of(described["UpfrontFee"]),
    )
