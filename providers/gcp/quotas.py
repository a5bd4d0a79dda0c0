"""The project's quotas, as limits for the planner.

Compute Engine counts accelerators by kind and region. Spot and flex-start count separately where a
project has a quota for them. On-demand instances that Compute Engine deletes within seven days
count against either quota, as there is room. Quotas on cores are not limits here, since the quota
that counts a machine depends on its family. Compute Engine refuses a launch beyond them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.kinds import Kind
from providers.gcp.settings import GcpSale

# Quotas by region and metric.
Quotas = Mapping[tuple[str, str], float]
# Metrics whose quotas count the same instances, as there is room in either.
Metrics = tuple[str, ...]

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
    quotas: Quotas,
    sales: Iterable[GcpSale],
    kinds: Mapping[str, Kind],
    is_short: Callable[[GcpSale], bool],
) -> list[Limit]:
    """Return the quotas as limits on the sales.

    `is_short` returns whether Compute Engine deletes a sale's instances within seven days.
    """
    devices: defaultdict[tuple[str, Metrics], set[str]] = defaultdict(set)
    instances: defaultdict[str, set[str]] = defaultdict(set)
    for sale in sales:
        offer, region = sale.offer, sale.pool.region
        instances[region].add(offer.id)
        kind = kinds.get(offer.instance_type)
        metric = _METRICS.get(kind.accelerator) if kind is not None else None
        is_reserved = offer.purchase is Purchase.RESERVED  # the reservation counts, used or not
        if metric is not None and not is_reserved:
            for metrics in _counted_by(quotas, region, metric, offer.purchase, is_short(sale)):
                devices[region, metrics].add(offer.id)
    limits = [
        _limit(region, metrics, LimitUnit.DEVICES, quotas, offers)
        for (region, metrics), offers in devices.items()
        if all((region, metric) in quotas for metric in metrics)
        and (len(metrics) == 1 or offers != devices.get((region, metrics[1:])))
    ]
    return limits + [
        _limit(region, (_INSTANCES,), LimitUnit.INSTANCES, quotas, offers)
        for region, offers in instances.items()
        if (region, _INSTANCES) in quotas
    ]


def _counted_by(
    quotas: Quotas, region: str, metric: str, purchase: Purchase, is_short: bool
) -> Iterator[Metrics]:
    """Yield the sets of metrics whose quotas together bound a purchase.

    `metric` is that of on-demand, which also counts spot where spot has no quota of its own.
    Flex-start counts against the spot quota.
    """
    spot_metric = f"PREEMPTIBLE_{metric}"
    if quotas.get((region, spot_metric), 0.0) <= 0:
        yield (metric,)
        return
    if purchase in (Purchase.SPOT, Purchase.FLEX_START):
        yield (spot_metric,)
    elif not is_short:
        yield (metric,)
    yield (metric, spot_metric)


def _limit(
    region: str, metrics: Metrics, unit: LimitUnit, quotas: Quotas, offers: Iterable[str]
) -> Limit:
    maximum = math.floor(sum(quotas[region, metric] for metric in metrics))
    name = f"{region}: {' + '.join(metrics)}"
    return Limit(name, unit, maximum, frozenset(offers), "quotas of the project in Google Cloud")
