"""All that a policy may know when it plans. Plain data: printable, storable, replayable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.goodput import (
    BatchBounds,
    NoiseCurve,
    NoiseScale,
    StepParameters,
)
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.lives import Lives
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.report import Quality, StepObservation
from autoscaler.domain.terms import StudyTerms, TrialRecord


@dataclass(frozen=True, slots=True)
class SizeError:
    """How far step times measured at one size lie from the formula's.

    `log_errors` are logarithms of measured over predicted, one for each draw of the model.
    """

    instances: int
    devices: int
    log_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BatchErrors:
    """How far step times measured at some device batches lie from the formula's at any size.

    `log_errors` are logarithms of measured over predicted, less what their size has in common;
    one for each of `device_batches`, of which there is at least one, increasing.
    """

    device_batches: tuple[int, ...]
    log_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """What is known of one job's throughput on one kind of device.

    `draws` are K samples of the parameters, equally likely; draw k of every kind belongs
    together. `measured` are the (instances, devices) with step times of their own, `size_errors`
    and `batch_errors` what those say beyond the parameters.
    """

    device_kind: str
    point: StepParameters
    draws: tuple[StepParameters, ...]
    measured: frozenset[tuple[int, int]] = frozenset()
    size_errors: tuple[SizeError, ...] = ()
    batch_errors: BatchErrors | None = None


@dataclass(frozen=True, slots=True)
class SwitchingCosts:
    """What changing costs this job, measured where it has been.

    `start_seconds` (offer id -> seconds) is from the launch to the first step trained;
    `fill_seconds` (likewise) is what the job's orders that wait in a queue have yet to wait, where
    a new one would have to wait for the offer's;
    `pause_seconds` is what a change of membership takes from the running replicas;
    `restore_seconds` is what a start from a checkpoint adds, lost work included;
    `measure_seconds` is how long a new size trains until its step times are known.
    `dwell_seconds` is the job's age over how many of its changes a later one took back; None
    while none was. A checkpoint holds training up for `checkpoint_seconds`; it is taken every
    `checkpoint_interval_seconds`, None where that is not the owner's word. It has
    `checkpoint_bytes`, as far as is known; a move by it to another network takes `carry_seconds`
    beside a start.
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


@dataclass(frozen=True, slots=True)
class Regime:
    """A stretch of a run at one batch: how long its epochs take, and how many are behind it."""

    batch: int
    epoch_seconds: float
    epochs_done: float = 0.0


@dataclass(frozen=True, slots=True)
class Regimes:
    """The regimes of a run of `epochs` in all, in their order.

    How many epochs are left to each is not told; those of all together are as many as the run
    has. Epochs take what they do on the devices requested, alone.
    """

    epochs: int
    regimes: tuple[Regime, ...]

    @property
    def epochs_done(self) -> float:
        """Epochs behind it, of all regimes."""
        return sum(regime.epochs_done for regime in self.regimes)

    @property
    def current(self) -> int:
        """The place of the last regime that has begun."""
        begun = (place for place, each in enumerate(self.regimes) if each.epochs_done > 0)
        return max(begun, default=0)


@dataclass(frozen=True, slots=True)
class Truth:
    """What nobody can know of a job: only simulations tell it, and only to oracles.

    `step_seconds` (devices -> seconds) are those of a step at the requested batch on as few
    machines as can be; `remaining_steps` are the steps left at that batch. `regimes` are those of
    a job whose owner changes the batch as it runs; its requested batch is the present one. Where
    there are several kinds of device, `kind_step_seconds` has the steps of each.
    """

    step_seconds: Mapping[int, float]
    remaining_steps: float
    regimes: Regimes | None = None
    kind_step_seconds: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def step_seconds_on(self, device_kind: str | None) -> Mapping[int, float]:
        """Devices of that kind -> seconds of a step; empty where nothing is known."""
        if self.kind_step_seconds:
            return self.kind_step_seconds.get(device_kind or "", {})
        return self.step_seconds


@dataclass(frozen=True, slots=True)
class Service:
    """What a job has been given so far.

    `attained_device_seconds` are of the devices it used, `kind_device_seconds` of those of each
    kind; `restarts` its changes of placement after the first; `started_seconds` and
    `changed_seconds` are when it first had devices and when those changed last.
    `mean_active_jobs` is how many jobs there were on average since it was submitted, itself among
    them; None: as many as now.
    """

    attained_device_seconds: float = 0.0
    restarts: int = 0
    started_seconds: float | None = None
    changed_seconds: float | None = None
    kind_device_seconds: Mapping[str, float] = field(default_factory=dict)
    mean_active_jobs: float | None = None


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job. `held` is what it holds or has ordered; `trained` what trains now.

    Orders that wait in a cloud's queue are not held, for they cost nothing and are left at will:
    but those of an offer that others of them have come of, until these are measured.

    `models` (device kind -> model) has one for each kind of device that the job may use; where
    nothing was measured, its draws are the prior's. A kind without one is never bought.
    `remaining_examples` None: it is not known how much is left. `requested_devices` are what the
    owner of a rigid job asked for; `placement` is what it holds of machines that jobs share.
    `noise_curve` is that of an earlier run of the same program, if there was one.
    It waited `waited_seconds` for its first step, or has waited so long by now.
    `held_reclaims_per_hour` is the hazard of what is held at its age; None: that of a new one.
    `quality` is what was measured of the model so far, oldest first, if the job tells it.
    `as_of_seconds` is when all this was so, None: at the moment of the snapshot. Of a job of which
    there is no news but its progress, policies may be told what was so a moment ago. A job of a
    `study` is one of its trials. The last of what it holds was ordered at `ordered_seconds`.
    `standby` are instances of another offer that are paused and can train again without a boot.
    `bounds_reason` says why `instances` are narrower than its owner asked for, if they are.
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
    service: Service = Service()
    truth: Truth | None = None
    progress_examples: float = 0.0
    noise_curve: NoiseCurve | None = None
    held_reclaims_per_hour: float | None = None
    quality: tuple[Quality, ...] = ()
    as_of_seconds: float | None = None
    study: str | None = None
    ordered_seconds: float | None = None
    standby: Allocation | None = None
    bounds_reason: str | None = None


@dataclass(frozen=True, slots=True)
class FreeInstance:
    """An instance that a study holds and no trial of it does, since the last one left it.

    So much longer it is paid for in any case.
    """

    offer: str
    paid_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """A study whose driver has stated its terms, with all its trials, those that have ended too.

    `spent_usd` is what all of them have cost; `steps` (job -> step times) are those that the job
    of a trial has timed itself.
    """

    name: str
    terms: StudyTerms
    trials: tuple[TrialRecord, ...] = ()
    free: tuple[FreeInstance, ...] = ()
    spent_usd: float = 0.0
    steps: Mapping[str, tuple[StepObservation, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The moment `now_seconds`: what is offered, what limits all, and every job that is alive.

    Of `unavailable` offers no more can be had now than is held. The next plan is made after
    `replan_seconds` at the latest. `lives` are of the offers that may be reclaimed, by their ids.
    `studies` are those of which terms were stated and that have trials among the jobs. The jobs
    `undisturbed` hold instances that are new, since whose order nothing asks for other decisions.
    """

    now_seconds: float
    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    jobs: tuple[JobSnapshot, ...]
    unavailable: frozenset[str] = frozenset()
    replan_seconds: float = 60.0
    lives: Mapping[str, Lives] = field(default_factory=dict)
    studies: tuple[StudySnapshot, ...] = ()
    undisturbed: frozenset[str] = frozenset()
