"""Instances: as the controller wants and holds them, and as a cloud tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from autoscaler.domain.errors import ProviderError
from autoscaler.domain.transfer import FREE, TransferAccount

CONTROLLER_TAG = "castor:controller"
JOB_TAG = "castor:job"
INSTANCE_TAG = "castor:instance"

# A fact of an instance: the network of its offer, if that has one.
NETWORK_FACT = "network"
# When it could have started, where it had to wait for those of another network to leave, and when
# they had.
READY_FACT = "ready"
LET_IN_FACT = "let in"
# Facts of an instance that an earlier job held: when it became this one's, and how long it took
# from its launch to the first work that it did; the latter also of one that had to wait.
HANDED_OVER_FACT = "handed over"
START_FACT = "start seconds"
# Facts of an instance that stands by: when that ends at the latest, empty once it is over; and
# when the instance was called back to work.
STANDBY_FACT = "stands by until"
RECALLED_FACT = "called back"
# A fact of an instance whose launch was taken before its cloud knew of capacity; empty later.
UNDECIDED_FACT = "undecided"


class CloudState(StrEnum):
    """What the cloud says of an instance. Only the cloud may say `TERMINATED`.

    `QUEUED`: the order is taken, and there is no capacity for it yet. It costs nothing.
    """

    QUEUED = "queued"
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


class InstancePhase(StrEnum):
    """How far an instance is on its way from wish to work and back.

    One that is `READY` lacks nothing but leave to start; one that is `WAITING` has no work now.
    """

    REQUESTED = "requested"
    QUEUED = "queued"
    BOOTING = "booting"
    PREPARING = "preparing"
    READY = "ready"
    STARTING = "starting"
    TRAINING = "training"
    WAITING = "waiting"
    DRAINING = "draining"
    DRAINED = "drained"
    ENDED = "ended"


class Desired(StrEnum):
    """What the controller wants of an instance."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One instance to launch. The same `token` never yields a second instance.

    `tags` hold at least the three of this module; `user_data` reaches the instance and carries
    no lasting secret.
    """

    token: str
    offer: str
    tags: Mapping[str, str]
    user_data: str


@dataclass(frozen=True, slots=True)
class CloudInstance:
    """An instance as its cloud tells of it; times are the cloud's, and are what is billed.

    `launched_seconds` is when it got its capacity: None while it is `QUEUED`, and of one that
    ended there, which is not billed. Of one that is `PENDING` or `RUNNING` it is known.
    `is_decided` is False while the cloud may still refuse the launch. `refusal` is why it did: the
    instance has ended and never ran.
    """

    id: str
    token: str
    offer: str
    state: CloudState
    tags: Mapping[str, str]
    launched_seconds: float | None
    ended_seconds: float | None = None
    is_decided: bool = True
    refusal: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Interruption:
    """The cloud takes an instance back: a spot reclaim or a maintenance.

    It said so at `notice_seconds` and does so at `reclaim_seconds`, both since the epoch.
    """

    instance: str
    notice_seconds: float
    reclaim_seconds: float


@dataclass(frozen=True, slots=True)
class HeldInstance:
    """An instance as the controller's store knows it.

    `slot` numbers the places of a job's pool, `generation` the instances that filled a slot one
    after the other; both are in `id`. Times are None until they happen. `extras_usd_per_hour` is
    in `usd_per_hour`, as in its offer.
    """

    id: str
    job: str
    slot: int
    generation: int
    offer: str
    devices_used: int
    usd_per_hour: Decimal
    desired: Desired
    phase: InstancePhase
    requested_seconds: float
    cloud_id: str | None = None
    launched_seconds: float | None = None
    joined_seconds: float | None = None
    training_seconds: float | None = None
    draining_seconds: float | None = None
    ended_seconds: float | None = None
    seen_seconds: float | None = None
    reclaim_seconds: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    extras_usd_per_hour: Decimal = Decimal(0)
    transfer: TransferAccount = FREE

    @property
    def network(self) -> str:
        """Where it can train with others."""
        return self.facts.get(NETWORK_FACT, "")

    @property
    def standby_ends_seconds(self) -> float | None:
        """When its standby ends at the latest; None: it does not stand by.

        An instance on standby is paid for, keeps its place in its job and does not train.
        """
        told = self.facts.get(STANDBY_FACT)
        return float(told) if told else None

    @property
    def stands_by(self) -> bool:
        """Whether it is wanted on standby: paused until another size is measured."""
        return self.desired is Desired.PRESENT and self.standby_ends_seconds is not None

    @property
    def is_recalled(self) -> bool:
        """Whether its job called it back from standby."""
        return bool(self.facts.get(RECALLED_FACT))

    @property
    def ordered_seconds(self) -> float:
        """When its job wanted it last: by its order, or by calling it back from standby."""
        return max(self.requested_seconds, float(self.facts.get(RECALLED_FACT) or 0.0))

    @property
    def costing_usd_per_hour(self) -> Decimal:
        """Its price, and nothing while it waits in a queue."""
        return Decimal(0) if self.phase is InstancePhase.QUEUED else self.usd_per_hour


def by_job(instances: Iterable[HeldInstance]) -> dict[str, list[HeldInstance]]:
    """The instances of each job that has any."""
    found: dict[str, list[HeldInstance]] = {}
    for held in instances:
        found.setdefault(held.job, []).append(held)
    return found
