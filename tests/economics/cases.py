"""Offers, models and jobs shared by tests of economics and policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.snapshot import (
    JobSnapshot,
    Snapshot,
    SwitchingCosts,
    ThroughputModel,
)

NOW = 1_800_000_000.0
FIXED = BatchBounds(initial=64, maximum=64, device_maximum=64, adaptive=False)
# Examples a second of 64-example steps: 100 on 1 device (0.64 s), 178 on 2, 281 on 4, 383 on 8,
# 455 on 16.
THETA = ThroughputParameters(0.0, 0.01, 0.02, 0.02, 0.02, 0.02, 1.0)
# All (instances, devices) of a few instances with one or two devices.
ALL = frozenset((n, n * u) for n in range(1, 9) for u in (1, 2))


def offer(
    name: str = "small",
    usd_per_hour: str = "0.10",
    devices: int = 1,
    kind: str = "core",
    boot_seconds: float = 6.0,
    reclaims_per_hour: float = 0.0,
    **changes: object,
) -> Offer:
    spot = reclaims_per_hour > 0
    plain = Offer(
        id=name,
        provider="local",
        instance_type=name,
        zone="local",
        purchase=Purchase.SPOT if spot else Purchase.ON_DEMAND,
        devices=devices,
        device_kind=kind,
        usd_per_hour=Decimal(usd_per_hour),
        boot_seconds=boot_seconds,
        network_bytes_per_second=2e9,
        reclaims_per_hour=reclaims_per_hour,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


SMALL = offer("local-small", "0.10")
LARGE = offer("local-large", "0.19", devices=2)


def model(
    theta: ThroughputParameters = THETA,
    kind: str = "core",
    measured: Iterable[tuple[int, int]] = ALL,
    draws: int = 1,
    spread: float = 0.0,
) -> ThroughputModel:
    """Return a model; its seconds differ between draws by `spread`, 0 for a certain model."""
    generator = np.random.default_rng(7)
    sets = []
    for _ in range(draws):
        factors = np.exp(spread * generator.standard_normal(6))
        seconds = [
            getattr(theta, name) * factor
            for name, factor in zip(_SECONDS, factors.tolist(), strict=True)
        ]
        sets.append(ThroughputParameters(*seconds, gamma=theta.gamma))
    return ThroughputModel(kind, theta, tuple(sets), frozenset(measured))


_SECONDS = tuple(name for name in ThroughputParameters.__slots__ if name != "gamma")


def job(
    name: str = "resnet",
    held: Allocation | None = None,
    models: Mapping[str, ThroughputModel] | ThroughputModel | None = None,
    **changes: object,
) -> JobSnapshot:
    if models is None:
        models = model()
    if isinstance(models, ThroughputModel):
        models = {models.device_kind: models}
    plain = JobSnapshot(
        id=name,
        objective=Objective(),
        instances=InstanceBounds(1, 4),
        batch=FIXED,
        submitted_seconds=NOW - 100.0,
        remaining_examples=9000.0,
        spent_usd=0.0 if held is None else 0.01,
        held=held,
        trained=held,
        models=models,
        noise=None,
        switching=SwitchingCosts(pause_seconds=0.05, restore_seconds=3.0),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def snapshot(
    *jobs: JobSnapshot,
    offers: Iterable[Offer] = (SMALL, LARGE),
    limits: Iterable[Limit] = (),
    **changes: object,
) -> Snapshot:
    plain = Snapshot(NOW, tuple(offers), tuple(limits), jobs)
    return replace(plain, **changes)  # type: ignore[arg-type]


def devices(maximum: float, name: str = "local devices") -> Limit:
    return Limit(name, LimitUnit.DEVICES, maximum)


def valued(usd_per_hour: float, **changes: object) -> Objective:
    plain = Objective(Preference.VALUE_OF_TIME, usd_per_hour)
    return replace(plain, **changes)  # type: ignore[arg-type]
