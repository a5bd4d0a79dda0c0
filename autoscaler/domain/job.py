"""A job: what was submitted, and the phases it goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autoscaler.domain.goodput import with_limit
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Offer
from autoscaler.domain.output import OutputSpec
from autoscaler.domain.report import TrainingReport


class JobPhase(StrEnum):
    """Where a job stands. The last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """Nothing happens to the job any more."""
        return self in (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.STOPPED)


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """The owner's word on batch sizes; None leaves it to the training script.

    Not `adaptive`: the total batch stays what the script says, and instances only split it.
    `kind_maxima` are as in `BatchBounds`.
    """

    initial: int | None = None
    maximum: int | None = None
    device_maximum: int | None = None
    adaptive: bool = False
    kind_maxima: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceBounds:
    """How many instances, and which. `offers` None means any; ids or instance types else.

    `maxima` (id or instance type, instances) bound some offers further.
    """

    minimum: int = 1
    maximum: int = 1
    offers: tuple[str, ...] | None = None
    spot: bool = True
    maxima: tuple[tuple[str, int], ...] = ()

    def most_of(self, offer: Offer) -> int:
        """How many instances of that offer there may be."""
        if not self.maxima:
            return self.maximum
        own = (most for name, most in self.maxima if name in (offer.id, offer.instance_type))
        return min((self.maximum, *own))


@dataclass(frozen=True, slots=True)
class ParallelismSpec:
    """How a job's devices share a step: which throughput model it is judged by.

    Every `pipeline` devices hold a stage each of one replica, and pass its examples on in so many
    `microbatches`. Of `near_instances` is known that they lie together, in one rack or zone; more
    have a longer way to each other.
    """

    pipeline: int = 1
    microbatches: int = 1
    near_instances: int | None = None

    def __post_init__(self) -> None:
        near = 1 if self.near_instances is None else self.near_instances
        if min(self.pipeline, self.microbatches, near) < 1:
            raise ValueError(f"counts must be at least 1: {self}")
        if self.pipeline > 1 and self.near_instances is not None:
            raise ValueError(f"pipeline and near_instances: leave one of the two out: {self}")

    @property
    def stages(self) -> tuple[int, int] | None:
        """Stages of a replica and microbatches of a step; None where each device is a replica.

        What was measured under one of these says nothing of another.
        """
        return (self.pipeline, self.microbatches) if self.pipeline > 1 else None


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where the controller finds a secret when a node needs it. The value is never stored."""

    variable: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class DataMount:
    """A directory or file of the node that the job sees as `target`, relative to its own tree.

    `read_only` holds in a container; elsewhere the target is a link.
    """

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """Where checkpoints go, how often they are taken, how many are kept.

    A job with an absolute `directory` may `adopt` the checkpoints there of a job that it names.
    """

    directory: str | None = None
    interval_seconds: float | None = None
    keep: int = 2
    adopt: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that was submitted of one job.

    `bundle` is the SHA-256 of the packed working directory; `total_examples` overrides the
    useful examples that the script itself says it needs; `retries` counts failures of the
    script, never lost instances, reclaims or drains. `requested_devices` are for policies that
    give a job what its owner asked for, and nothing else. Jobs of one `program` share what is
    learnt of it; None: those of one name do. Where limits bind, a job of `priority` 2 counts
    twice as much as one of 1. `person` is who submitted it, on the word of the service alone.
    A job with a `study` is one of its trials; a `distributed` one runs on every device of every
    instance, another in one process. A job that `resumes` another goes on with that one's files.
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

    @property
    def program_name(self) -> str:
        """The program that the job runs."""
        return self.program or self.name


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the store knows it.

    `number` is unique for ever and small; `id` is unique too: the name, or the name and a suffix
    when an earlier job of that name has ended. `attempt` counts the starts of the script that
    failures made necessary, `retry_seconds` holds the next one back. `cause` and `last_lines` tell
    why the job ended or last failed.
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
    last_lines: tuple[str, ...] = ()
    lighthouse: str | None = None
    report: TrainingReport | None = None
    reported_seconds: float | None = None

    @property
    def known_batch(self) -> BatchSpec:
        """What the owner says of batches, with what devices were found to take at once."""
        batch = self.spec.batch
        maxima = batch.kind_maxima
        for kind, most in self.report.bounds.kind_maxima if self.report else ():
            maxima = with_limit(maxima, kind, most)
        return replace(batch, kind_maxima=maxima)

    @property
    def files_of(self) -> str:
        """Id of the job under which the files of this one lie: the first of its runs."""
        return self.spec.resumes or self.id
