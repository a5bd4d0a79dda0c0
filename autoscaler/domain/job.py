"""Jobs: the submitted specification, the phases and the stored record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePosixPath

from autoscaler.domain.access import OWNER, Owner
from autoscaler.domain.goodput import with_limit
from autoscaler.domain.model import ModelSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.output import OutputSpec
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.restart import RestartSpec


class JobPhase(StrEnum):
    """Phase of a job. FINISHED, FAILED and STOPPED are final."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended and its phase never changes again."""
        return self in (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.STOPPED)


class StopReason(StrEnum):
    """Budget that stopped a job."""

    JOB_BUDGET = "job budget"
    STUDY_BUDGET = "study budget"
    FLEET_BUDGET = "fleet budget"


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """The owner's batch sizes in examples; None leaves the value to the training script.

    If not `adaptive`, the total batch stays as the script sets it, and instances only split it.
    `kind_maxima` are as in `BatchBounds`.
    """

    initial: int | None = None
    maximum: int | None = None
    device_maximum: int | None = None
    adaptive: bool = False
    kind_maxima: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuKind:
    """Kind of GPU that a job may use, and the number of GPUs on an instance; None for any."""

    name: str
    devices: int | None = None

    def __str__(self) -> str:
        return self.name if self.devices is None else f"{self.name}:{self.devices}"

    def is_of(self, offer: Offer) -> bool:
        """Return whether instances of the offer have these GPUs."""
        return offer.device_kind == self.name and self.devices in (None, offer.devices)


@dataclass(frozen=True, slots=True)
class InstanceBounds:
    """Number of instances that a job may hold, and the offers it may use.

    `offers` lists offer ids or instance types, `gpus` kinds of GPU; None permits any. `maxima` (id
    or instance type, instances) sets lower maxima for some offers. `max_usd_per_hour` is the
    highest price of all instances together, `max_instance_usd_per_hour` of each; None: none.
    """

    minimum: int = 1
    maximum: int = 1
    offers: tuple[str, ...] | None = None
    spot: bool = True
    maxima: tuple[tuple[str, int], ...] = ()
    gpus: tuple[GpuKind, ...] | None = None
    max_usd_per_hour: Decimal | None = None
    max_instance_usd_per_hour: Decimal | None = None

    @property
    def has_ceiling(self) -> bool:
        """Whether the owner has set a highest price."""
        return self.max_usd_per_hour is not None or self.max_instance_usd_per_hour is not None

    @property
    def ceiling_text(self) -> str:
        """The highest prices in words, such as `$12/h, $4/h an instance`; empty without any."""
        texts = (
            None if self.max_usd_per_hour is None else f"${self.max_usd_per_hour}/h",
            None
            if self.max_instance_usd_per_hour is None
            else f"${self.max_instance_usd_per_hour}/h an instance",
        )
        return ", ".join(text for text in texts if text is not None)

    def permits(self, offer: Offer) -> bool:
        """Return whether the job may use the offer."""
        if self.has_ceiling and not self._affords(offer):
            return False
        if offer.purchase is Purchase.SPOT and not self.spot:
            return False
        if self.gpus is not None and not any(gpu.is_of(offer) for gpu in self.gpus):
            return False
        named = self.offers
        return named is None or offer.id in named or offer.instance_type in named

    def most_of(self, offer: Offer) -> int:
        """Return the maximal number of instances of one offer."""
        if not self.maxima and self.max_usd_per_hour is None:
            return self.maximum
        limits = (most for name, most in self.maxima if name in (offer.id, offer.instance_type))
        return min((self.maximum, *limits, self._most_affordable(offer)))

    def _affords(self, offer: Offer) -> bool:
        """Return whether the least number of instances is within the highest prices."""
        ceiling = self.max_instance_usd_per_hour
        if ceiling is not None and offer.usd_per_hour > ceiling:
            return False
        return self._most_affordable(offer) >= max(self.minimum, 1)

    def _most_affordable(self, offer: Offer) -> int:
        if self.max_usd_per_hour is None or not offer.usd_per_hour:
            return self.maximum
        return min(int(self.max_usd_per_hour / offer.usd_per_hour), self.maximum)


@dataclass(frozen=True, slots=True)
class ParallelismSpec:
    """Distribution of a step over a job's devices, which selects the throughput model.

    Every `pipeline` devices hold one stage each of a replica and pass on its examples in
    `microbatches` micro-batches. Up to `near_instances` instances lie together in one rack or
    zone; more instances span several.

    Every `shard` devices hold one copy of the model in equal parts (PyTorch's FSDP). Where an
    instance has fewer devices, a gang of several instances holds the copy. If `shards` lists sizes
    or `auto_shard` is set, the controller chooses `shard` before the job's first instance, and the
    job then `has_chosen_shard`, which may be 1.
    """

    pipeline: int = 1
    microbatches: int = 1
    near_instances: int | None = None
    shard: int = 1
    shards: tuple[int, ...] = ()
    auto_shard: bool = False
    has_chosen_shard: bool = False

    def __post_init__(self) -> None:
        near = 1 if self.near_instances is None else self.near_instances
        if min(self.pipeline, self.microbatches, near, self.shard, *self.shards) < 1:
            raise ValueError(f"counts must be at least 1: {self}")
        if self.pipeline > 1 and self.near_instances is not None:
            raise ValueError(f"pipeline and near_instances: leave one of the two out: {self}")
        if self.may_shard and (self.pipeline > 1 or self.near_instances is not None):
            raise ValueError(f"shard excludes pipeline and near_instances: leave it out: {self}")
        if self.is_undecided and self.shard > 1:
            raise ValueError(
                f"shard and sizes to choose it from: leave one of the two out: {self}"
            )

    @property
    def stages(self) -> tuple[int, int] | None:
        """Stages of a replica and microbatches of a step; None without a pipeline.

        Measurements under one value say nothing about another.
        """
        return (self.pipeline, self.microbatches) if self.pipeline > 1 else None

    @property
    def may_shard(self) -> bool:
        """Whether several devices hold one copy of the model, or may do so once that is chosen."""
        return self.shard > 1 or self.is_undecided

    @property
    def is_undecided(self) -> bool:
        """Whether the controller has yet to choose `shard`."""
        return bool(self.shards) or self.auto_shard

    def holds_copies(self, devices_used: int) -> bool:
        """Return whether instances that use this many devices each can hold whole copies."""
        larger, smaller = max(devices_used, self.shard), min(devices_used, self.shard)
        return smaller >= 1 and larger % smaller == 0

    def gang_instances(self, devices_used: int) -> int:
        """Return the number of instances that hold one copy of the model together.

        It is 1 where an instance holds one or several copies.

        Raises:
            ValueError: instances that use `devices_used` devices each can't hold whole copies.
        """
        if not self.holds_copies(devices_used):
            raise ValueError(
                f"shard: {self.shard} devices can't be split into instances of {devices_used}"
            )
        return max(self.shard // devices_used, 1)

    def gang_of(self, devices_used: int) -> int | None:
        """Return `gang_instances`; None: instances that use so many devices hold no copies."""
        return self.gang_instances(devices_used) if self.holds_copies(devices_used) else None

    def gang_on(self, offer: Offer) -> int | None:
        """Return `gang_instances` of an offer with all its devices; None: it holds no copies."""
        return self.gang_of(offer.devices)

    def least_instances(self, bounds: InstanceBounds, offer: Offer) -> int | None:
        """Return the fewest instances of an offer within bounds; None: it holds no copies."""
        gang = self.gang_on(offer)
        return None if gang is None else gang * -(-max(bounds.minimum, 1) // gang)

    def most_instances(self, bounds: InstanceBounds, offer: Offer) -> int:
        """Return the most instances of an offer within bounds, in whole gangs."""
        gang = self.gang_on(offer)
        return 0 if gang is None else gang * (bounds.most_of(offer) // gang)


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Source from which the controller reads a secret for a node. No value is stored."""

    variable: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class DataMount:
    """File or directory of the node that the job sees at `target` in its working directory.

    `read_only` works in a container only; without one the target is a symbolic link.
    """

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Directory and interval of checkpoints, and the number to keep.

    A job with an absolute `directory` may `adopt` the checkpoints of a named job there.
    """

    directory: str | None = None
    interval_seconds: float | None = None
    keep: int = 2
    adopt: str | None = None


class StallPolicy(StrEnum):
    """Consequence of a stall: an event alone, or a pause too.

    A paused job leaves its instances and ends with its checkpoint; `castor resume` continues it.
    """

    TELL = "tell"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Everything that is submitted for one job.

    `bundle` is the SHA-256 of the packed working directory. `total_examples` overrides the useful
    examples that the script itself reports as its total. `retries` counts failures of the script,
    never lost instances, reclaims or drains. `requested_devices` are for policies that give a job
    exactly what its owner asked for. Jobs of one `program` share models; None groups jobs by name.
    Where limits bind, a job of `priority` 2 weighs twice as much as one of 1. `person` is the
    submitter and `team` the submitter's, as set by the service. A job with a `study` is one of its
    trials. A `distributed` job runs on every device of every instance; any other job runs in one
    process. `resumes` is the id of the job whose files this job continues with. A job with
    `restart` is resized by restarts of its command, and opens no session. `model` declares the
    memory that the job needs; None: unknown, which excludes no device.
    """

    name: str
    command: tuple[str, ...]
    bundle: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    data: tuple[DataMount, ...] = ()
    setup: tuple[str, ...] = ()
    image: str | None = None
    batch: BatchSpec = BatchSpec()
    instances: InstanceBounds = InstanceBounds()
    objective: Objective = Objective()
    checkpoint: CheckpointSpec = CheckpointSpec()
    total_examples: float | None = None
    retries: int = 3
    requested_devices: int | None = None
    program: str | None = None
    parallelism: ParallelismSpec = ParallelismSpec()
    priority: float = 1.0
    person: str | None = None
    study: str | None = None
    distributed: bool = False
    outputs: OutputSpec = field(default_factory=OutputSpec)
    resumes: str | None = None
    restart: RestartSpec | None = None
    model: ModelSpec | None = None
    stalls: StallPolicy = StallPolicy.TELL
    team: str | None = None

    @property
    def owner(self) -> Owner:
        """Owner of the job."""
        return Owner(self.person or OWNER, self.team)

    @property
    def shared_directory(self) -> str | None:
        """Absolute directory of the checkpoints, where another job may save too; None if none."""
        directory = self.checkpoint.directory
        if directory is None or self.study is not None:
            return None
        path = PurePosixPath(directory)
        return str(path) if path.is_absolute() else None

    @property
    def program_name(self) -> str:
        """Name of the program that the job runs."""
        return self.program or self.name


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the store records it.

    `number` is small and never reused. `id` is unique too: the name, with a suffix if an earlier
    job of that name has ended. `attempt` counts starts of the script after failures; the next
    start is not before `retry_seconds`. `cause` and `last_lines` explain why the job ended or last
    failed. `stop_reason` is the budget that stopped it; None if none did.
    """

    id: str
    number: int
    spec: JobSpec
    phase: JobPhase
    submitted_seconds: float
    started_seconds: float | None = None
    ended_seconds: float | None = None
    attempt: int = 1
    retry_seconds: float | None = None
    cause: str | None = None
    stop_reason: StopReason | None = None
    last_lines: tuple[str, ...] = ()
    lighthouse: str | None = None
    report: TrainingReport | None = None
    reported_seconds: float | None = None

    @property
    def known_batch(self) -> BatchSpec:
        """The owner's batch sizes, limited to what devices were found to take at once."""
        batch = self.spec.batch
        maxima = batch.kind_maxima
        for kind, most in self.report.bounds.kind_maxima if self.report else ():
            maxima = with_limit(maxima, kind, most)
        return replace(batch, kind_maxima=maxima)

    @property
    def files_of(self) -> str:
        """Id of the job under which this job's files lie: the first of its runs."""
        return self.spec.resumes or self.id
