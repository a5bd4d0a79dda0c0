"""The project's quotas, as limits for the planner.

Compute Engine counts accelerators by kind and region. Spot and flex-start count separately where a
project has a quota for them. Quotas on cores are not limits here, since the quota that counts a
machine depends on its family. Compute Engine refuses a launch beyond them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.kinds import Kind
from providers.gcp.settings import GcpSale

# Quotas by region and metric.
Quotas = Mapping[tuple[str, str], float]

_METRICS: Final = {
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
    "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS",
    "nvidia-h200-141gb": "NVIDIA_H200_GPUS",
}
_INSTANCES: Final = "INSTANCES"


def read_quotas(calls: ProjectCalls, regions: Iterable[str]) -> Quotas:
    """Return every quota of the regions.

    Raises:
        ProviderError: the quotas can't be read.
    """
    quotas: dict[tuple[str, str], float] = {}
    for name in regions:
        region = calls.region(name)
        with readable(f"{name}: regions.get"):
            quotas |= {(name, quota.metric): float(quota.limit) for quota in region.quotas}
    return quotas


def quota_limits(
    quotas: Quotas, sales: Iterable[GcpSale], kinds: Mapping[str, Kind]
) -> list[Limit]:
    """Return the quotas as limits on the sales."""
    devices: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    instances: defaultdict[str, set[str]] = defaultdict(set)
    for sale in sales:
        offer, region = sale.offer, sale.pool.region
        instances[region].add(offer.id)
        kind = kinds.get(offer.instance_type)
        metric = _METRICS.get(kind.accelerator) if kind is not None else None
        if metric is not None:
            devices[region, _metric_for_purchase(quotas, region, metric, offer.purchase)].add(
                offer.id
            )
    limits = [
        _limit(region, metric, LimitUnit.DEVICES, quotas[region, metric], offers)
        for (region, metric), offers in devices.items()
        if (region, metric) in quotas
    ]
    return limits + [
        _limit(region, _INSTANCES, LimitUnit.INSTANCES, quotas[region, _INSTANCES], offers)
        for region, offers in instances.items()
        if (region, _INSTANCES) in quotas
    ]


def _metric_for_purchase(quotas: Quotas, region: str, metric: str, purchase: Purchase) -> str:
    """Return the metric of a purchase; that of on-demand where spot has no quota of its own.

    Flex-start counts against the spot quota.
    """
    spot_metric = f"PREEMPTIBLE_{metric}"
    may_be_separate = purchase in (Purchase.SPOT, Purchase.FLEX_START)
    return (
        spot_metric if may_be_separate and quotas.get((region, spot_metric), 0.0) > 0 else metric
    )


def _limit(
    region: str, metric: str, unit: LimitUnit, maximum: float, offers: Iterable[str]
) -> Limit:
    return Limit(f"{region}: {metric}", unit, math.floor(maximum), frozenset(offers))
