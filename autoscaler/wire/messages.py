"""Messages of the HTTP API, for users and node agents.

The fields of these dataclasses are the keys of the API's JSON. Money is a decimal string. Times
are seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final

from pydantic import ConfigDict

from autoscaler.domain.activity import Activity
from autoscaler.domain.alarm import ModelAlarm
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.gang import GangPlace
from autoscaler.domain.goodput import StepParameters
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase, JobSpec, StopReason
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Action
from autoscaler.domain.report import Ending, Failure, FailureCategory, TrainingReport
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.time_use import TimeCount, TimeUse
from autoscaler.domain.transfer import TransferCount
from autoscaler.domain.trial import TrialEnding

FROM_PEOPLE: Final = ConfigDict(extra="forbid")
"""Configuration of request bodies of users: unknown keys are errors, at any depth."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Job to run. Its bundle must have been uploaded before."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of a running job; None keeps a value."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    objective: Objective | None = None
    instances: InstanceBounds | None = None
    priority: float | None = None


@dataclass(frozen=True, slots=True)
class Resumption(Change):
    """Changes for a job's next run. A `spec` replaces that of the earlier run."""

    spec: JobSpec | None = None


@dataclass(frozen=True, slots=True)
class InstanceView:
    """State of an instance. `cloud_id` is its id in its cloud; None before the launch.

    `gang` is its seat among the instances that train as one, like "gang 2, 1 of 4"; None without.
    """

    id: str
    job: str
    offer: str
    phase: InstancePhase
    devices: int
    usd_per_hour: Decimal
    requested_seconds: float
    reclaim_seconds: float | None = None
    cloud_id: str | None = None
    gang: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionView:
    """Decision for a job, with its reason. `current` and `target` are None for no instances.

    `ground` is a `ReasonCode` or the code of a newer version, empty if the policy sets none.
    `note` names constraints that can't be kept, and is part of `reason`, too. `plan` is the number
    of its plan, which the span of a trace has as `castor.plan`; None from an older controller.
    `planned_seconds` is the time of the latest plan that made or kept the decision; None if the
    present controller has not.
    """

    at_seconds: float
    job: str
    action: Action
    reason: str
    current: Allocation | None
    target: Allocation | None
    figures: Mapping[str, float] = field(default_factory=dict)
    ground: str = ""
    note: str = ""
    plan: int | None = None
    planned_seconds: float | None = None

    @property
    def stated_seconds(self) -> float:
        """Time of its reason and figures: of the latest plan if the job stays as it is."""
        if self.action in (Action.HOLD, Action.WAIT) and self.planned_seconds is not None:
            return self.planned_seconds
        return self.at_seconds


@dataclass(frozen=True, slots=True)
class EventView:
    """Event of a job, or of the fleet if `job` is None."""

    at_seconds: float
    job: str | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class JobView:
    """State of a job. `goodput_predicted` is the model's goodput for the held instances.

    `false_starts` describe offers that are avoided for now, because instances there ended early.
    `hands_off` is the reason why decisions are not carried out; None if they are. `weight` is the
    factor on the job's gains against other jobs, from `person`'s share and `priority`. `person`
    and `team` own the job. `last_lines` are empty for those who may not read its log. A job with
    a `study` is a trial. `trouble` is a current error of planning, launching or releasing.
    `alarm` reports measured step times that contradict the job's model. `is_sessionless`: the
    script has run for a while without a training session, so it gets one instance and its
    progress is unknown. `trial_ending` is the end of a stopped job's trial;
    `stop_reason` is the budget that stopped the job. `failure_category` is that of its last
    failure; None if it has not failed. `stall` says why it seems not to learn; None if it does.
    `version` changes with what people change, and is what `If-Match` takes.
    """

    id: str
    phase: JobPhase
    objective: Objective
    bounds: InstanceBounds
    submitted_seconds: float
    started_seconds: float | None
    ended_seconds: float | None
    instances: tuple[InstanceView, ...]
    spent_usd: Decimal
    usd_per_hour: Decimal
    report: TrainingReport | None
    reported_seconds: float | None
    goodput_predicted: float | None
    eta_seconds: float | None
    decision: DecisionView | None
    attempt: int
    cause: str | None
    last_lines: tuple[str, ...]
    checkpoint_directory: str
    events: tuple[EventView, ...] = ()
    false_starts: tuple[str, ...] = ()
    hands_off: str | None = None
    weight: float = 1.0
    priority: float = 1.0
    person: str | None = None
    study: str | None = None
    trouble: str | None = None
    alarm: ModelAlarm | None = None
    is_sessionless: bool = False
    trial_ending: TrialEnding | None = None
    stop_reason: StopReason | None = None
    team: str | None = None
    failure_category: FailureCategory | None = None
    stall: str | None = None
    version: str = ""

    @property
    def waits(self) -> bool:
        """Whether the job has trained before, and holds no instance now."""
        return self.phase is JobPhase.RUNNING and not self.instances

    @property
    def phase_text(self) -> str:
        """Phase in a word; `waiting` for a job that has trained and holds no instance."""
        return "waiting" if self.waits else self.phase.value

    @property
    def goodput_measured(self) -> float | None:
        """Useful examples per second of the last report; None without one, or while it waits."""
        return None if self.report is None or self.waits else self.report.goodput_measured


@dataclass(frozen=True, slots=True)
class ForecastView:
    """Prediction of the fitted model for a job that keeps one size from start to end."""

    allocation: Allocation
    measured: bool
    seconds: float
    seconds_90: float
    usd: float
    usd_90: float


@dataclass(frozen=True, slots=True)
class FleetView:
    """Offers, limits and instances of the fleet, and the state of the controller.

    Instances of `silent` providers can't be listed now. `strays` are orphans of this deployment,
    by the cloud's id, which are being ended. `refusals` has the reason by `unavailable` offer.
    `hands_off` is the reason why decisions are not carried out; None if they are. `failed_plans`
    and `solver_failures` count plans that failed, or were made without the solver, since the
    controller started. `time_today` is the use of time that agents have counted on this day (UTC),
    and `productive_share` the useful part of it; None without any. `trouble` has the present
    errors. `notes` has, by provider, what is no error, such as quotas to raise.
    """

    controller: str
    version: str
    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    unavailable: frozenset[str]
    instances: tuple[InstanceView, ...]
    usd_per_hour: Decimal
    shadow_prices_usd_per_hour: Mapping[str, float]
    ticked_seconds: float | None
    trouble: str | None
    hands_off: str | None = None
    failed_plans: int = 0
    solver_failures: int = 0
    silent: frozenset[str] = frozenset()
    strays: frozenset[str] = frozenset()
    refusals: Mapping[str, str] = field(default_factory=dict)
    productive_share: float | None = None
    time_today: TimeUse = field(default_factory=TimeUse)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfferView:
    """Offer with source and age of its price; `is_stale` if the price may have changed.

    `is_unavailable`: the provider refused it recently, so it is not ordered now.
    """

    offer: Offer
    price_source: str
    price_age_seconds: float | None
    is_stale: bool
    is_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class OffersView:
    """All offers; `refused` has the reason by offer for offers left out because of their price."""

    offers: tuple[OfferView, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransferView:
    """Part of the costs that is for transfer of jobs' files between networks."""

    total_usd: Decimal
    by_job: Mapping[str, Decimal]
    by_offer: Mapping[str, Decimal]
    by_day: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class CostView:
    """Spending so far: total, and by job, offer, day, month (UTC, ISO 8601), user and team.

    Jobs without a team count under the team "none".
    Instances of `paid_already` offers add no cost. `transfer` is None if there was none.
    """

    total_usd: Decimal
    usd_per_hour: Decimal
    by_job: Mapping[str, Decimal]
    by_offer: Mapping[str, Decimal]
    by_day: Mapping[str, Decimal]
    paid_already: frozenset[str] = frozenset()
    transfer: TransferView | None = None
    by_month: Mapping[str, Decimal] = field(default_factory=dict)
    by_person: Mapping[str, Decimal] = field(default_factory=dict)
    by_team: Mapping[str, Decimal] = field(default_factory=dict)


EVERY_INSTANCE: Final = "*"


@dataclass(frozen=True, slots=True)
class LogPart:
    """Log text of an instance from `offset` on; the next part begins at `next_offset`.

    `times` are pairs (index of a character in `text`, time of receipt from this character on).
    """

    instance: str
    next_offset: int
    text: str
    times: tuple[tuple[int, float], ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Request of an agent to join with the single-use token of its user data.

    `proof` is the cloud's signed identity document of the instance; None if it has none.
    `accelerators` is the number of GPUs that the instance's driver lists; None if not counted.
    `key` is a random text of this start of the agent: with the same one it may join again for a
    minute, if the reply is lost; None: not again.
    """

    token: str
    instance: str
    proof: str | None = None
    accelerators: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Work of an instance. `secrets` hold values, which are never stored or logged.

    A relative `checkpoint_directory` is on the instance's disk, and the durable copies are in
    `depot`, a location in a cloud's storage that `grant` covers. The grant's credential is only
    in one file, which the job's user reads. `outputs_directory` receives copies of the script's
    files if there is no grant; None keeps none. `checkpoint_owner` and `adopts` are as in
    `TrainingSetup`. `user_number` is the number of the job's OS user, that of the study's first
    job for trials; None, from an older controller, means `job_number`.
    """

    job: str
    job_number: int
    spec: JobSpec
    secrets: Mapping[str, str]
    offer: Offer
    devices_used: int
    attempt: int
    lighthouse: str | None
    peer_token: str
    checkpoint_directory: str
    checkpoint_interval_seconds: float
    heartbeat_timeout_seconds: float
    collective_timeout_seconds: float
    depot: str | None = None
    grant: StorageGrant | None = None
    outputs_directory: str | None = None
    checkpoint_owner: str | None = None
    adopts: str | None = None
    user_number: int | None = None


@dataclass(frozen=True, slots=True)
class JoinReply:
    """First token and assignment of an agent. `drain_seconds` as in `NodeReply`."""

    token: str
    assignment: Assignment
    heartbeat_seconds: float
    lease_seconds: float
    drain_seconds: float


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Heartbeat of an agent. It is repeated until answered, and repeats have no effect.

    `attempt` numbers the current or last start of the script, made at `started_seconds` of the
    node's clock. `is_done`: its part in the attempt is over, and another instance reports the
    job's end. `is_complete`: the script and its job ended well. All fields but `reclaim_seconds`
    and `notes` are about `job`; None from agents that know one job only. `transfer` counts bytes
    until now, or until the instance left the job; None from agents that do not count.
    `has_session`: the script opened a training session. `ending` and `stop_reason` are about a
    script that `is_complete`; None from older agents.

    `rendezvous` is the `host:port` at which the leader of a gang hosts the rendezvous of its
    ranks, now or at the next start. `generation` is the one of the gang in which this instance
    started the script last, 0 for none; `is_generation_over`: the script failed or left there, so
    that the whole gang must start again. `saved` names the newest checkpoint of that start of a
    restartable job; None without one. `activity` is that of a script without a step for a while.
    `gpu_use` is that of all GPUs of the instance; None where they can't be asked.
    `time` counts for what the instance's time was used in `job`; None from agents that do not.
    """

    instance: str
    phase: InstancePhase
    attempt: int
    devices_used: int
    started_seconds: float | None = None
    reports: tuple[TrainingReport, ...] = ()
    failure: Failure | None = None
    is_done: bool = False
    is_complete: bool = False
    reclaim_seconds: float | None = None
    notes: tuple[str, ...] = ()
    job: str | None = None
    transfer: TransferCount | None = None
    has_session: bool = False
    ending: Ending | None = None
    stop_reason: str | None = None
    rendezvous: str | None = None
    generation: int = 0
    is_generation_over: bool = False
    saved: str | None = None
    activity: Activity | None = None
    gpu_use: GpuUse | None = None
    time: TimeCount | None = None


class Wanted(StrEnum):
    """Desired state of an instance."""

    RUN = "run"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class NodeReply:
    """Answer to a heartbeat, with the desired state of the instance.

    The agent kills a draining script after `drain_seconds`. `checkpoint_interval_seconds` replaces
    that of the assignment; None keeps it. If `job` is another job, the agent must fetch that job's
    assignment. Unless it `may_start`, the agent prepares and waits: other instances of its job,
    which it can't reach, still train, or one has completed the job. `pauses`: the script of an
    instance on standby must leave; it is started again once it may start. `place` is that in its
    gang, None for an instance that trains alone; the script starts when its address is known, and
    again when its generation grows. `token` replaces the agent's token; None: it stays. The next
    heartbeat without news is due after `heartbeat_seconds`; None: as at the join.
    """

    wanted: Wanted
    attempt: int
    start_seconds: float | None
    devices_used: int
    drain_seconds: float
    throughput: StepParameters | None = None
    checkpoint_interval_seconds: float | None = None
    job: str | None = None
    may_start: bool = True
    pauses: bool = False
    place: GangPlace | None = None
    token: str | None = None
    heartbeat_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Error answer, a problem of RFC 9457.

    Attributes:
        error: name of a class of `domain.errors`, which programs may compare.
        message: reason and way out, for people.
        field: wrong field; None if no field is at fault.
        type: URN of the `error`.
        title: name of the status.
        status: status of the answer; None from an older controller.
        detail: the `message`, under the name of the RFC.
    """

    error: str
    message: str
    field: str | None = None
    type: str = "about:blank"
    title: str = ""
    status: int | None = None
    detail: str = ""


PROBLEM_TYPE: Final = "application/problem+json"
"""Media type of a `Fault`."""
