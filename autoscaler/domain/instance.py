"""Instances as the controller desires and holds them, and as a cloud describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum

from autoscaler.domain.activity import activity_of
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.facts import Fact, FactValue, seconds_of
from autoscaler.domain.gang import parse_seat, parse_start
from autoscaler.domain.job_world import (
    parse_generation_time,
    parse_member_report,
    parse_opening,
    parse_save,
    parse_world,
)
from autoscaler.domain.report import Ending
from autoscaler.domain.transfer import FREE, TransferAccount
from autoscaler.domain.trial import TrialEnding

CONTROLLER_TAG = "castor:controller"
JOB_TAG = "castor:job"
INSTANCE_TAG = "castor:instance"

OTHER_ZONE = "other zone"
"""Kind of the event that a cloud launched an alternative of the planned offer."""


class CloudState(StrEnum):
    """State of an instance as its cloud reports it. Only the cloud sets `TERMINATED`.

    `QUEUED`: the cloud has accepted the order and waits for capacity. A queued order costs
    nothing.
    """

    QUEUED = "queued"
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


class InstancePhase(StrEnum):
    """Phase of an instance's life in its job, from order to end.

    `READY`: prepared, and awaiting admission to start. `WAITING`: without work at present.
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
    """State in which the controller wants an instance."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Request to launch one instance. Repeating a `token` never launches a second one.

    `tags` hold at least the three tags of this module. `user_data` reaches the instance and must
    contain no lasting secret. The cloud may launch one of `alternatives` instead of `offer`; they
    are of the same `Offer.order_group`.
    """

    token: str
    offer: str
    tags: Mapping[str, str]
    user_data: str
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskedOffer:
    """Offer that an order names, at its price when the order was made."""

    id: str
    usd_per_hour: Decimal
    extras_usd_per_hour: Decimal


def asked_text(asked: Iterable[AskedOffer]) -> str:
    """Return the offers of an order as text, a line for each; the planned offer is the first."""
    return "\n".join(
        f"{offer.id} {offer.usd_per_hour} {offer.extras_usd_per_hour}" for offer in asked
    )


def asked_offers(text: str) -> tuple[AskedOffer, ...]:
    """Return the offers of an order from `asked_text`.

    Raises:
        ValueError: the text is malformed.
    """
    parts = (line.rsplit(" ", 2) for line in text.splitlines())
    try:
        return tuple(AskedOffer(id, Decimal(usd), Decimal(extras)) for id, usd, extras in parts)
    except InvalidOperation as error:
        raise ValueError(f"not a price: {text}") from error


@dataclass(frozen=True, slots=True)
class CloudInstance:
    """An instance as its cloud describes it; billing follows the cloud's times.

    `offer` is what the cloud launched, which may be one of the order's alternatives.
    `launched_seconds` is when the instance got its capacity. It is None while the instance is
    `QUEUED`, and for an unbilled order that ended in the queue. It is never None in states
    `PENDING` and `RUNNING`. `is_decided` is False while the cloud may still refuse the launch.
    `refusal` is the error of a refused launch: such an instance has ended and never ran.
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
    """Announcement that the cloud takes an instance back: spot reclaim or maintenance.

    The cloud gave notice at `notice_seconds` and takes the instance back at `reclaim_seconds`,
    both since the epoch.
    """

    instance: str
    notice_seconds: float
    reclaim_seconds: float


@dataclass(frozen=True, slots=True)
class HeldInstance:
    """An instance as the controller's store records it.

    `slot` numbers the positions of a job's pool; `generation` numbers the instances that filled
    one slot in succession. Both are part of `id`. Times are in seconds since the epoch, None until
    the event happens. `extras_usd_per_hour` is included in `usd_per_hour`, as in the offer.
    `facts` are texts by `Fact`; read them by the attributes below.

    `offer` is the planned one until the cloud reports which of several it launched; until then
    `usd_per_hour` is the price of the dearest.
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

    # Times at which the instance was ready, and at which it was admitted, if it had to wait for
    # instances of another network to leave.
    prepared_seconds = FactValue(Fact.PREPARED, seconds_of)
    admitted_seconds = FactValue(Fact.ADMITTED, seconds_of)
    # Time of the hand-over from an earlier job.
    handed_over_seconds = FactValue(Fact.HANDED_OVER, seconds_of)
    # Seconds from launch to first work, if the instance was handed over or had to wait.
    measured_start_seconds = FactValue(Fact.START, seconds_of)
    # Latest end of the standby, in which the instance is paid for, keeps its slot in its job and
    # does not train.
    standby_ends_seconds = FactValue(Fact.STANDBY, seconds_of, if_malformed=0.0)
    # Time at which the job recalled the instance from standby.
    recalled_seconds = FactValue(Fact.RECALLED, seconds_of)
    # True while the cloud has accepted the launch but not yet confirmed capacity.
    is_undecided = FactValue(Fact.UNDECIDED, bool)
    # Times of the first report of a session, of the first without one, and at which the script
    # had run for too long without one.
    session_seconds = FactValue(Fact.SESSION, seconds_of)
    unopened_seconds = FactValue(Fact.UNOPENED, seconds_of)
    without_session_seconds = FactValue(Fact.WITHOUT_SESSION, seconds_of)
    # True for the instance that starts the script before there was any session.
    starts_first = FactValue(Fact.FIRST_START, bool)
    # Longest time from capacity to the agent's join, as the offer had it at the order.
    join_seconds = FactValue(Fact.JOIN, seconds_of)
    # Offers that the order named, the planned one first; None for an order of one offer.
    asked = FactValue(Fact.ASKED, asked_offers)
    # Cause for which the controller gave the instance up.
    given_up_cause = FactValue(Fact.GIVEN_UP, str)
    # Time at which the replica completed its job, and the attempt in which it did its part.
    completed_seconds = FactValue(Fact.COMPLETE, seconds_of, if_malformed=0.0)
    done_attempt = FactValue(Fact.DONE, int)
    # Outcome of the script, and the reason that a script gave for its early stop.
    script_ending = FactValue(Fact.SCRIPT_END, Ending, if_malformed=Ending.WITHOUT_SESSION)
    stop_reason = FactValue(Fact.STOP_REASON, str)
    # Time at which the driver acknowledged a trial's end, its outcome and the cause.
    ending_seconds = FactValue(Fact.ENDING, seconds_of)
    trial_ending = FactValue(Fact.TRIAL_END, TrialEnding)
    trial_cause = FactValue(Fact.TRIAL_CAUSE, str)
    # Seat in a gang, the member's last start of the script, and the address at which a leader
    # hosts the rendezvous, now or at the next start.
    seat = FactValue(Fact.GANG, parse_seat)
    gang_start = FactValue(Fact.GANG_START, parse_start)
    rendezvous = FactValue(Fact.RENDEZVOUS, str)
    # World of a restartable job that this instance leads or led, and the permission to start it.
    world = FactValue(Fact.WORLD, parse_world)
    world_opening = FactValue(Fact.WORLD_OPENING, parse_opening)
    # Last start of a restartable job's command, its first progress and its newest checkpoint.
    world_report = FactValue(Fact.WORLD_REPORT, parse_member_report)
    world_begun = FactValue(Fact.WORLD_BEGUN, parse_generation_time)
    world_save = FactValue(Fact.WORLD_SAVE, parse_save)
    # Times from which the instance can be a member of a world, and from which it is to leave it.
    world_ready_seconds = FactValue(Fact.WORLD_READY, seconds_of)
    leaves_world_seconds = FactValue(Fact.LEAVES_WORLD, seconds_of)
    # Activity of a script that has made no step for a while; None while it makes steps.
    activity = FactValue(Fact.ACTIVITY, activity_of)

    @property
    def ordered_offer(self) -> str:
        """Id of the offer for which the instance was planned and ordered."""
        return self.asked[0].id if self.asked else self.offer

    @property
    def alternatives(self) -> tuple[str, ...]:
        """Ids of the other offers that the order named."""
        return tuple(offer.id for offer in (self.asked or ())[1:])

    @property
    def network(self) -> str:
        """Network within which the instance can train with others; empty if unnamed."""
        return self.facts.get(Fact.NETWORK, "")

    @property
    def stands_by(self) -> bool:
        """Whether the controller wants the instance on standby, paused."""
        return self.desired is Desired.PRESENT and self.standby_ends_seconds is not None

    @property
    def ordered_seconds(self) -> float:
        """Time of the last order or of a later recall from standby."""
        return max(self.requested_seconds, self.recalled_seconds or 0.0)

    @property
    def costing_usd_per_hour(self) -> Decimal:
        """Price at present in $/h: 0 while the order waits in a queue."""
        return Decimal(0) if self.phase is InstancePhase.QUEUED else self.usd_per_hour


def by_job(instances: Iterable[HeldInstance]) -> dict[str, list[HeldInstance]]:
    """Return instances grouped by job id."""
    instances_by_job: dict[str, list[HeldInstance]] = {}
    for held in instances:
        instances_by_job.setdefault(held.job, []).append(held)
    return instances_by_job
