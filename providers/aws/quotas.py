"""The account's quotas, as limits for the planner.

EC2 counts the vCPUs of families of types, separately for on-demand and spot. A `Limit` counts
instances or devices. Each quota therefore bounds the instances of every type. It also bounds the
devices of all types together, at the smallest number of vCPUs per device. These limits are never
stricter than the quota. If they admit a mix that the quota does not, EC2 refuses it with a quota
error.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from providers.aws.calls import RegionCalls
from providers.aws.kinds import Kind
from providers.aws.settings import AwsSale
from providers.cloud.replies import readable

# "Running On-Demand G and VT instances", "All P4, P3 and P2 Spot Instance Requests", ...
_ON_DEMAND: Final = re.compile(r"Running On-Demand (.+) instances")
_PLACE: Final = "Service Quotas of the account in AWS"
_SPOT: Final = re.compile(r"All (.+) Spot Instance Requests")


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """Quota on vCPUs of the types whose names begin with one of `families`."""

    name: str
    code: str
    purchase: Purchase
    families: tuple[str, ...]
    vcpus: float

    def fit(self, instance_type: str) -> int:
        """Return the length of the longest family that contains the type; 0 if none does."""
        return max(
            (len(family) for family in self.families if _is_in_family(instance_type, family)),
            default=0,
        )


def read_quotas(calls: RegionCalls) -> list[VcpuQuota]:
    """Return EC2's vCPU quotas in a region.

    Raises:
        ProviderError: the quotas can't be read.
    """
    quotas = []
    for page in calls.quotas():
        with readable(f"{calls.region}: ListServiceQuotas"):
            for entry in page["Quotas"]:
                quota = _parse_quota(entry["QuotaName"], entry["QuotaCode"], float(entry["Value"]))
                if quota is not None:
                    quotas.append(quota)
    return quotas


def quota_limits(
    region: str, quotas: Iterable[VcpuQuota], sales: Iterable[AwsSale], kinds: Mapping[str, Kind]
) -> list[Limit]:
    """Return the quotas as limits on the region's sales.

    The quota with the longest matching family applies to a type.
    """
    all_quotas = list(quotas)
    sales_by_quota: defaultdict[VcpuQuota, list[AwsSale]] = defaultdict(list)
    for sale in sales:
        offer = sale.offer
        fitting_quotas = [
            quota
            for quota in all_quotas
            if quota.purchase is offer.purchase and quota.fit(offer.instance_type)
        ]
        if fitting_quotas:
            sales_by_quota[
                max(fitting_quotas, key=lambda quota: quota.fit(offer.instance_type))
            ].append(sale)
    return [
        limit
        for quota, quota_sales in sales_by_quota.items()
        for limit in _limits_of(region, quota, quota_sales, kinds)
    ]


def _limits_of(
    region: str, quota: VcpuQuota, sales: Iterable[AwsSale], kinds: Mapping[str, Kind]
) -> list[Limit]:
    offers_by_type: defaultdict[str, set[str]] = defaultdict(set)
    for sale in sales:
        offers_by_type[sale.offer.instance_type].add(sale.offer.id)
    name = f"{region}: {quota.name} ({quota.code})"
    limits = [
        Limit(
            f"{name} of {kind}",
            LimitUnit.INSTANCES,
            math.floor(quota.vcpus / kinds[kind].vcpus),
            frozenset(offers),
            _PLACE,
        )
        for kind, offers in offers_by_type.items()
    ]
    if len(offers_by_type) > 1:
        vcpus_per_device = min(kinds[kind].vcpus / kinds[kind].devices for kind in offers_by_type)
        all_offers = frozenset().union(*offers_by_type.values())
        limits.append(
            Limit(
                name,
                LimitUnit.DEVICES,
                math.floor(quota.vcpus / vcpus_per_device),
                all_offers,
                _PLACE,
            )
        )
    return limits


def _parse_quota(name: str, code: str, vcpus: float) -> VcpuQuota | None:
    for pattern, purchase in ((_ON_DEMAND, Purchase.ON_DEMAND), (_SPOT, Purchase.SPOT)):
        match = pattern.fullmatch(name)
        if match is not None:
            families = re.findall(r"[A-Z][A-Za-z]*\d*", match[1].replace("Standard", ""))
            return VcpuQuota(
                name, code, purchase, tuple(family.lower() for family in families), vcpus
            )
    return None


def _is_in_family(instance_type: str, family: str) -> bool:
    """Return whether a family contains a type.

    ``p`` and ``p5`` contain p5.48xlarge; ``p5`` contains p5en.48xlarge; ``g`` contains
    gr6.4xlarge; ``i`` does not contain inf2.xlarge.
    """
    rest = instance_type.removeprefix(family)
    if rest == instance_type:
        return False
    return family[-1].isdigit() or re.match(r"r?\d", rest) is not None
