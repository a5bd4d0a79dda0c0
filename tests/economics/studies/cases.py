"""Small studies for tests: trials of known speed on one or two offers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.economics.studies.rungs.rung import FutureRung
from autoscaler.economics.studies.supply import StudySupply, TrialSwitching
from autoscaler.economics.studies.trial_state import TrialState
from autoscaler.goodput.throughput import FloatArray

DEVICES = (1, 2, 4, 8)
USD_PER_SECOND = 0.001


def offer(name: str = "gpu", devices: int = 1, **changes: object) -> Offer:
    terms: dict[str, object] = {
        "id": name,
        "provider": "simulated",
        "instance_type": name,
        "zone": "a",
        "purchase": Purchase.ON_DEMAND,
        "devices": devices,
        "device_kind": "t4",
        "usd_per_hour": Decimal("3.6") * devices,
        "boot_seconds": 120.0,
        "network_bytes_per_second": 1e9,
    }
    return Offer(**(terms | changes))  # type: ignore[arg-type]


def supply(
    quota: int | None = None,
    sizes: Sequence[int] = DEVICES,
    switching: TrialSwitching | None = None,
    **changes: object,
) -> StudySupply:
    limits = () if quota is None else (Limit("quota", LimitUnit.INSTANCES, float(quota)),)
    allocations = tuple(Allocation("gpu", size, 1) for size in sizes)
    switching = switching or TrialSwitching(60.0, 30.0, 10.0)
    return StudySupply((offer(**changes),), allocations, switching, limits)


def rates(
    speed: float, serial: float, draws: int = 1, sizes: Sequence[int] = DEVICES
) -> FloatArray:
    """Amdahl's law, alike in all draws, (K, A)."""
    devices = np.array(sizes, dtype=np.float64)
    row = speed * devices / (1.0 + serial * (devices - 1.0))
    return np.tile(row, (draws, 1))


def trial(
    name: str,
    work: float,
    held: int | None = None,
    serial: float = 0.1,
    sizes: Sequence[int] = DEVICES,
) -> TrialState:
    return TrialState(name, work, rates(1.0, serial, sizes=sizes), held)


def later(*works: float, trials: int = 1, serial: float = 0.1) -> tuple[FutureRung, ...]:
    return tuple(
        FutureRung(
            np.full((1, trials), work), np.tile(rates(1.0, serial)[:, None], (1, trials, 1))
        )
        for work in works
    )
