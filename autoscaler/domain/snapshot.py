"""All that a policy may know when it plans. Plain data: printable, storable, replayable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer


@dataclass(frozen=True, slots=True)
class SizeError:
    """How far step times measured at one size lie from the formula's.

    `log_errors` are logarithms of measured over predicted, one for each draw of the model.
    """

    instances: int
    devices: int
    log_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """What is known of one job's throughput on one kind of device.

    `draws` are K samples of the parameters, equally likely; draw k of every kind belongs
    together. `measured` are the (instances, devices) with step times of their own, `size_errors`
    what those say beyond the parameters.
    """

    device_kind: str
    point: ThroughputParameters
    draws: tuple[ThroughputParameters, ...]
    measured: frozenset[tuple[int, int]] = frozenset()
    size_errors: tuple[SizeError, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchingCosts:
    """What changing costs this job, measured where it has been.

    `start_seconds` (offer id -> seconds) is from the launch call to the first step trained;
    `pause_seconds` is what a change of membership takes from the running replicas;
    `restore_seconds` is what a start from a checkpoint adds, lost work included;
    `measure_seconds` is how long a new size trains until its step times are known.
    `dwell_seconds` is the job's age over how many of its changes a later one took back; None
    while none was.
    """

    pause_seconds: float
    restore_seconds: float
    start_seconds: Mapping[str, float] = field(default_factory=dict)
    dwell_seconds: float | None = None
    measure_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job. `held` is what it holds or has ordered; `trained` what trains now.

    `models` (device kind -> model) has one for each kind of device that the job may use; where
    nothing was measured, its draws are the prior's. A kind without one is never bought.
    `remaining_examples` None: it is not known how much is left.
    """

    id: str
    objective: Objective
    instances: InstanceBounds
    batch: BatchBounds
    submitted_seconds: float
    remaining_examples: float | None
    spent_usd: float
    held: Allocation | None
    trained: Allocation | None
    models: Mapping[str, ThroughputModel]
    noise: NoiseScale | None
    switching: SwitchingCosts
    waited_seconds: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The moment `now_seconds`: what is offered, what limits all, and every job that is alive.

    Of `unavailable` offers no more can be had now than is held. The next plan is made after
    `replan_seconds` at the latest.
    """

    now_seconds: float
    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    jobs: tuple[JobSnapshot, ...]
    unavailable: frozenset[str] = frozenset()
    replan_seconds: float = 60.0
