"""Snapshots: everything that a policy may know when it plans, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.budget import BudgetState
from autoscaler.domain.goodput import (
    BatchBounds,
    NoiseCurve,
    NoiseScale,
    StepParameters,
)
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.lives import LifetimeEstimate
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.report import Quality, StepObservation
from autoscaler.domain.shards import UnfitOffer
from autoscaler.domain.terms import StudyTerms, TrialRecord


@dataclass(frozen=True, slots=True)
class SizeError:
    """Error of the throughput formula at one measured size.

    `log_errors` are logarithms of measured over predicted step time, one for each draw of the
    model.
    """

    instances: int
    devices: int
    log_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BatchErrors:
    """Error of the throughput formula at some device batches, common to all sizes.

    `log_errors` are logarithms of measured over predicted step time, less the error of their size,
    one for each of `device_batches`. `device_batches` is increasing and not empty.
    """

    device_batches: tuple[int, ...]
    log_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """Posterior of one job's throughput on one kind of device.

    `draws` are K equally likely samples of the parameters; draws of the same index on all kinds
    belong together. `measured` are the (instances, devices) with measured step times.
    `size_errors` and `batch_errors` correct the parameters' predictions there. `fit_error` is the
    root mean square log error that the fit left at the step times; 0 without any.
    """

    device_kind: str
    point: StepParameters
    draws: tuple[StepParameters, ...]
    measured: frozenset[tuple[int, int]] = frozenset()
    size_errors: tuple[SizeError, ...] = ()
    batch_errors: BatchErrors | None = None
    fit_error: float = 0.0


@dataclass(frozen=True, slots=True)
class SwitchingCosts:
    """Costs of changing this job's allocation, measured where possible.

    Attributes:
        pause_seconds: pause of the running replicas at a change of membership.
        restore_seconds: added by a start from a checkpoint, lost work included.
        start_seconds: offer id -> seconds from launch to the first trained step.
        dwell_seconds: job's age divided by its number of reversed changes; None without any.
        measure_seconds: training time at a new size until its step times are known.
        checkpoint_seconds: pause of training while a checkpoint is written.
        checkpoint_interval_seconds: the owner's interval of checkpoints; None if not set.
        checkpoint_bytes: size of a checkpoint, as far as known.
        carry_seconds: added to a start by moving a checkpoint to another network.
        fill_seconds: offer id -> remaining seconds in the queue of the job's waiting orders. A new
            order waits for the offer's `fill_seconds` instead.
        loss_seconds: pauses and repeated work after a lost instance, if each change restarts the
            job from its checkpoint; None: `pause_seconds`.
    """

    pause_seconds: float
    restore_seconds: float
    start_seconds: Mapping[str, float] = field(default_factory=dict)
    dwell_seconds: float | None = None
    measure_seconds: float = 30.0
    checkpoint_seconds: float = 0.0
    checkpoint_interval_seconds: float | None = None
    checkpoint_bytes: float = 0.0
    carry_seconds: float = 0.0
    fill_seconds: Mapping[str, float] = field(default_factory=dict)
    loss_seconds: float | None = None

    @property
    def reclaim_seconds(self) -> float:
        """Seconds without progress after a lost instance, while the others train on."""
        return self.pause_seconds if self.loss_seconds is None else self.loss_seconds

    @property
    def restarts(self) -> bool:
        """Whether each change restarts the job, so that no instance stands by for it."""
        return self.loss_seconds is not None


@dataclass(frozen=True, slots=True)
class Regime:
    """Part of a run at one batch size, with its epoch time and completed epochs."""

    batch: int
    epoch_seconds: float
    epochs_done: float = 0.0


@dataclass(frozen=True, slots=True)
class Regimes:
    """Batch-size regimes of a run of `epochs` epochs in total, in order.

    The epochs left to each regime are unknown; only their total is known. Epoch times hold for the
    requested devices without other jobs.
    """

    epochs: int
    regimes: tuple[Regime, ...]

    @property
    def epochs_done(self) -> float:
        """Completed epochs over all regimes."""
        return sum(regime.epochs_done for regime in self.regimes)

    @property
    def current(self) -> int:
        """Index of the last regime that has begun."""
        begun_places = (
            place for place, regime in enumerate(self.regimes) if regime.epochs_done > 0
        )
        return max(begun_places, default=0)


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Ground truth of a simulated job, which only oracle policies may use.

    `step_seconds` (devices -> seconds) are step times at the requested batch on as few machines as
    possible. `remaining_steps` are the steps left at that batch. `regimes` are set for a job whose
    owner changes the batch as it runs; its requested batch is the present one. `kind_step_seconds`
    (device kind -> step times) is set where there are several kinds of device.
    """

    step_seconds: Mapping[int, float]
    remaining_steps: float
    regimes: Regimes | None = None
    kind_step_seconds: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def step_seconds_on(self, device_kind: str | None) -> Mapping[int, float]:
        """Return step times on one kind of device: devices -> seconds; empty if unknown."""
        if self.kind_step_seconds:
            return self.kind_step_seconds.get(device_kind or "", {})
        return self.step_seconds


@dataclass(frozen=True, slots=True)
class ServiceReceived:
    """Devices that a job has received so far.

    `attained_device_seconds` is the total and `kind_device_seconds` the total by kind of device.
    `restarts` counts changes of placement after the first. `started_seconds` and `changed_seconds`
    are the times of its first devices and of their last change. `mean_active_jobs` is the mean
    number of active jobs since its submission, itself included; None: as many as now.
    """

    attained_device_seconds: float = 0.0
    restarts: int = 0
    started_seconds: float | None = None
    changed_seconds: float | None = None
    kind_device_seconds: Mapping[str, float] = field(default_factory=dict)
    mean_active_jobs: float | None = None


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """State of one job. `held` is held or ordered; `trained` trains now.

    Orders in a cloud's queue are not part of `held`, because they cost nothing and can be
    cancelled. The exception are orders of an offer some of whose orders were filled, until those
    are measured.

    Attributes:
        models: device kind -> throughput model. Without measurements its draws are the prior's. A
            kind without a model is never bought.
        remaining_examples: useful examples left; None: unknown.
        waited_seconds: time from submission to the first step, or until now.
        requested_devices: devices that the owner of a rigid job asked for.
        placement: devices that the job holds of shared machines.
        noise_curve: noise scale of an earlier run of the same program, if there was one.
        held_reclaims_per_hour: hazard of the held instances at their age; None: as new ones.
        quality: measurements of the model's metric so far, oldest first.
        as_of_seconds: time of this state; None: the snapshot's. With no news except progress, a
            policy may get a slightly older state.
        study: the study of which this job is a trial.
        ordered_seconds: time of the last order among the held instances.
        standby: paused instances of another offer, which can train again without a boot.
        bounds_reason: reason why `instances` are narrower than the owner's bounds, if they are.
        parallelism: distribution of a step over devices, which decides on gangs of instances.
        unfit: offers within the owner's bounds that can't hold the job's model.
        budgets: scopes of the budgets of the snapshot that the job shares.
        dollar_weight: how much each dollar counts for the job beside its value of time. Policies
            set it from the budgets.
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
    requested_devices: int | None = None
    placement: Placement | None = None
    service: ServiceReceived = ServiceReceived()
    truth: GroundTruth | None = None
    progress_examples: float = 0.0
    noise_curve: NoiseCurve | None = None
    held_reclaims_per_hour: float | None = None
    quality: tuple[Quality, ...] = ()
    as_of_seconds: float | None = None
    study: str | None = None
    ordered_seconds: float | None = None
    standby: Allocation | None = None
    bounds_reason: str | None = None
    parallelism: ParallelismSpec = field(default_factory=ParallelismSpec)
    unfit: tuple[UnfitOffer, ...] = ()
    budgets: tuple[str, ...] = ()
    dollar_weight: float = 1.0

    @property
    def may_stand_by(self) -> bool:
        """Whether its instances may pause while those of another offer are measured."""
        return self.study is None and not self.switching.restarts

    def gang_instances(self, offer: Offer) -> int | None:
        """Return the instances of an offer that hold one copy of the model together.

        None if its instances, with all their devices, can't hold whole copies.
        """
        return self.parallelism.gang_on(offer)

    def least_instances(self, offer: Offer) -> int | None:
        """Return the fewest instances of an offer that the job may hold; None: it holds none."""
        return self.parallelism.least_instances(self.instances, offer)

    def most_instances(self, offer: Offer) -> int:
        """Return the most instances of an offer that the job may hold, in whole gangs."""
        return self.parallelism.most_instances(self.instances, offer)


@dataclass(frozen=True, slots=True)
class FreeInstance:
    """Instance that a study holds and none of its trials uses since the last one left.

    The instance is paid for during the next `paid_seconds` in any case.
    """

    offer: str
    paid_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """Study with stated terms, and all its trials, ended trials included.

    `spent_usd` is the cost of all trials so far. `steps` (job id -> observations) are step times
    that trials' jobs measured.
    """

    name: str
    terms: StudyTerms
    trials: tuple[TrialRecord, ...] = ()
    free: tuple[FreeInstance, ...] = ()
    spent_usd: float = 0.0
    steps: Mapping[str, tuple[StepObservation, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the world at `now_seconds`: offers, limits, and every live job.

    Jobs can't get more of `unavailable` offers than they hold. The next plan follows within
    `replan_seconds`. `lives` (offer id -> lifetimes) covers offers that may be reclaimed.
    `studies` have stated terms and at least one trial among the jobs. `undisturbed` jobs hold
    newly ordered instances and have had no cause for another decision since. `budgets` bound what
    the jobs that name them may spend.
    """

    now_seconds: float
    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    jobs: tuple[JobSnapshot, ...]
    unavailable: frozenset[str] = frozenset()
    replan_seconds: float = 60.0
    lives: Mapping[str, LifetimeEstimate] = field(default_factory=dict)
    studies: tuple[StudySnapshot, ...] = ()
    undisturbed: frozenset[str] = frozenset()
    budgets: tuple[BudgetState, ...] = ()
