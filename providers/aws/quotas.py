"""The account's quotas, as limits that a plan keeps to.

EC2 counts vCPUs of families of types, on-demand and spot apart. A limit counts instances or
devices, so each quota bounds the instances of every type, and the devices of them all by the type
that has the fewest vCPUs to a device: never tighter than the quota, and a mix that passes here
and not there is refused by EC2 as a quota, not as capacity.
"""

from __future__ import annotations

import logging
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

_log = logging.getLogger(__name__)

# "Running On-Demand G and VT instances", "All P4, P3 and P2 Spot Instance Requests", ...
_ON_DEMAND: Final = re.compile(r"Running On-Demand (.+) instances")
_SPOT: Final = re.compile(r"All (.+) Spot Instance Requests")


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """So many vCPUs of the types whose names begin with one of `families`."""

    name: str
    code: str
    purchase: Purchase
    families: tuple[str, ...]
    vcpus: float

    def fit(self, instance_type: str) -> int:
        """How closely the quota is the type's: 0 not at all, more the more it names of it."""
        return max((len(one) for one in self.families if _is_of(instance_type, one)), default=0)


def read_quotas(calls: RegionCalls) -> list[VcpuQuota]:
    """EC2's quotas of vCPUs in a region.

    Raises:
        ProviderError: they can't be had.
    """
    found = []
    for page in calls.quotas():
        with readable(f"{calls.region}: ListServiceQuotas"):
            for one in page["Quotas"]:
                quota = _vcpu_quota(one["QuotaName"], one["QuotaCode"], float(one["Value"]))
                if quota is not None:
                    found.append(quota)
    return found


def quota_limits(
    region: str, quotas: Iterable[VcpuQuota], sales: Iterable[AwsSale], kinds: Mapping[str, Kind]
) -> list[Limit]:
    """The quotas as limits on what is sold in the region."""
    known = list(quotas)
    covered: defaultdict[VcpuQuota, list[AwsSale]] = defaultdict(list)
    for sale in sales:
        offer = sale.offer
        fitting = [
            quota
            for quota in known
            if quota.purchase is offer.purchase and quota.fit(offer.instance_type)
        ]
        if fitting:
            covered[max(fitting, key=lambda quota: quota.fit(offer.instance_type))].append(sale)
    return [
        limit
        for quota, sold in covered.items()
        for limit in _limits_of(region, quota, sold, kinds)
    ]


def _limits_of(
    region: str, quota: VcpuQuota, sales: Iterable[AwsSale], kinds: Mapping[str, Kind]
) -> list[Limit]:
    of_type: defaultdict[str, set[str]] = defaultdict(set)
    for sale in sales:
        of_type[sale.offer.instance_type].add(sale.offer.id)
    name = f"{region}: {quota.name} ({quota.code})"
    limits = [
        Limit(
            f"{name} of {kind}",
            LimitUnit.INSTANCES,
            math.floor(quota.vcpus / kinds[kind].vcpus),
            frozenset(offers),
        )
        for kind, offers in of_type.items()
    ]
    if len(of_type) > 1:
        each = min(kinds[kind].vcpus / kinds[kind].devices for kind in of_type)
        everything = frozenset().union(*of_type.values())
        limits.append(Limit(name, LimitUnit.DEVICES, math.floor(quota.vcpus / each), everything))
    return limits


def _vcpu_quota(name: str, code: str, vcpus: float) -> VcpuQuota | None:
    for pattern, purchase in ((_ON_DEMAND, Purchase.ON_DEMAND), (_SPOT, Purchase.SPOT)):
        found = pattern.fullmatch(name)
        if found is not None:
            families = re.findall(r"[A-Z][A-Za-z]*\d*", found[1].replace("Standard", ""))
            return VcpuQuota(name, code, purchase, tuple(one.lower() for one in families), vcpus)
    return None


def _is_of(instance_type: str, family: str) -> bool:
    """``p`` and ``p5`` have p5.48xlarge, ``p5`` has p5en.48xlarge and ``g`` gr6.4xlarge; ``i`` has
    not inf2.xlarge.
    """
    rest = instance_type.removeprefix(family)
    if rest == instance_type:
        return False
    return family[-1].isdigit() or re.match(r"r?\d", rest) is not None
