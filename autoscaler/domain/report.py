"""Reports of a running job about its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Final

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale


@dataclass(frozen=True, slots=True)
class StepObservation:
    """Step times of one configuration, summed over `steps` steps of one stretch of training.

    Attributes:
        step_seconds: mean wall time of a whole step, with its share of training's overhead.
        sync_seconds: part of `step_seconds` spent waiting for the other devices.
        era: 0 for the present speed of the size, -1 for the speed before its last change, and so
            on. The store sets it; in a report it has no meaning.
        is_settled: whether at least two reports agree. The store sets it.
    """

    device_kind: str
    instances: int
    devices: int
    device_batch: int
    accumulation: int
    step_seconds: float
    sync_seconds: float
    steps: int
    era: int = 0
    is_settled: bool = True

    @property
    def configuration(self) -> tuple[str, int, int, int, int]:
        """Kind of device, instances, devices, device batch, accumulation."""
        return _configuration_of(self)

    @property
    def size(self) -> tuple[int, int]:
        """Instances, and devices in total."""
        return self.instances, self.devices

    @property
    def compute_seconds(self) -> float:
        """Seconds of one micro-step without synchronisation (T_compute)."""
        return max(self.step_seconds - self.sync_seconds, 1e-9) / (self.accumulation + 1)


_configuration_of = attrgetter(
    "device_kind", "instances", "devices", "device_batch", "accumulation"
)


@dataclass(frozen=True, slots=True)
class MembershipPause:
    """Pause of the running replicas at one change of membership.

    `kind` is join, drain or loss.
    """

    kind: str
    seconds: float
    replicas_before: int
    replicas_after: int


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The newest complete checkpoint, and the error of a later one, if any.

    Writing it took `seconds`, for `pause_seconds` of which training waited.
    """

    step: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    error: str | None = None
    pause_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Largest memory that tensors took on one device, with `device_batch` examples at once."""

    device_kind: str
    device_batch: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Quality:
    """Value of the owner's metric at some progress, in useful examples."""

    progress_examples: float
    metric: float


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """State of a job's training, as the deciding replica reports it.

    `progress_examples` and `total_examples` are useful examples: examples at the initial batch
    size. `observations` and `pauses` are new since the last report; `quality` has all measurements
    so far. `parameter_bytes` is the size of the gradients summed over the devices each step, as
    sent. `state_bytes` is the size of the state that a joiner or a checkpoint gets, frozen
    parameters included; None if unknown. `skipped_steps` of the `step` steps changed no weights,
    because the loss or a gradient was not finite. `memory` has the peaks of one device of this
    start; empty where its memory is not counted. `steps` are those of this start, in
    `trained_seconds` of training; None from older sessions.
    """

    step: int
    epoch: int
    progress_examples: float
    total_examples: float | None
    batch: Batch
    bounds: BatchBounds
    replicas: int
    devices: int
    learning_rate: float
    parameter_bytes: int
    noise: NoiseScale | None = None
    goodput_measured: float | None = None
    observations: tuple[StepObservation, ...] = ()
    pauses: tuple[MembershipPause, ...] = ()
    checkpoint: CheckpointStatus = CheckpointStatus()
    metrics: Mapping[str, float] = field(default_factory=dict)
    engine: str = "quorum"
    quality: tuple[Quality, ...] = ()
    skipped_steps: int = 0
    state_bytes: int | None = None
    memory: tuple[MemoryPeak, ...] = ()
    steps: int | None = None
    trained_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReportSample:
    """Numbers of one report, which arrived at `at_seconds`, for series over time.

    `batch` is the total batch in examples, `goodput` the measured one. `loss` is the metric of
    that name. None: not reported, or not finite.
    """

    at_seconds: float
    progress_examples: float
    batch: int
    learning_rate: float | None = None
    goodput: float | None = None
    noise_examples: float | None = None
    loss: float | None = None


MOST_REASON_LETTERS: Final = 200
CONSEQUENCE: Final = "consequence"
"""Kind of the event that says what follows from a failure."""


class Ending(StrEnum):
    """Outcome of a script that exited with status 0.

    COMPLETE: training reached its total. EARLY: the script opened a session and ended before its
    total. WITHOUT_SESSION: the script opened no session.
    """

    COMPLETE = "complete"
    EARLY = "early"
    WITHOUT_SESSION = "without session"


class FailureReason(StrEnum):
    """Reason of a failure that the training process itself reports."""

    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out of memory"


class FailureCategory(StrEnum):
    """Kind of a failure, which decides what follows from it (docs/failures.md)."""

    ENDED_FROM_OUTSIDE = "ended from outside"
    BROKEN_DEVICE = "broken device"
    DEVICE_MEMORY = "device memory"
    HOST_MEMORY = "host memory"
    DISK_FULL = "disk full"
    CHECKPOINT = "checkpoint"
    CUDA_VERSION = "CUDA version"
    CUDA_START = "CUDA start"
    INVALID_MEMORY_ACCESS = "invalid memory access"
    COMMUNICATION = "communication"
    CUDA_FAILURE = "CUDA failure"
    NETWORK = "network"
    PERMISSION = "permission"
    IMPORT = "import"
    SYNTAX = "syntax"
    DIVERGED = "diverged"
    INPUT = "input"
    SEMANTIC = "semantic"
    CRASH = "crash"
    EXCEPTION = "exception"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Failure:
    """One start of a job's script that ended in an error.

    `signature` is equal for failures of one cause. `steps` counts the steps of this start.
    `reason` is None if the process reported none. `device_limit` (kind of device, examples) is the
    new maximum per device after the script's own code ran out of memory. `category` is unknown in
    reports of agents older than it.
    """

    instance: str
    attempt: int
    exit_code: int
    cause: str
    signature: str
    steps: int
    last_lines: tuple[str, ...] = ()
    during_setup: bool = False
    reason: FailureReason | None = None
    device_limit: tuple[str, int] | None = None
    category: FailureCategory = FailureCategory.UNKNOWN


@dataclass(frozen=True, slots=True)
class ReportOrigin:
    """Start of the script that a report comes from: the `attempt` of a job on an instance.

    `started_seconds` is when the node started the script, by the node's clock. A later start may
    continue from a checkpoint at a smaller step.
    """

    instance: str
    attempt: int
    started_seconds: float
