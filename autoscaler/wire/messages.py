"""The messages of the HTTP API: what people, Python and node agents send and get.

Frozen dataclasses over the domain's own; the API's JSON is their fields. Money travels as a
decimal string, times are seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final

from pydantic import ConfigDict

from autoscaler.domain.alarm import ModelAlarm
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import StepParameters
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Action
from autoscaler.domain.report import Ending, Failure, TrainingReport
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.transfer import TransferCount
from autoscaler.domain.trial import TrialEnding

FROM_PEOPLE: Final = ConfigDict(extra="forbid")
"""For the bodies of people's requests: an unknown key, at any depth, is refused."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to run; the bundle it names was uploaded before."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Change:
    """What to change of a running job; None leaves it."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    objective: Objective | None = None
    instances: InstanceBounds | None = None
    priority: float | None = None


@dataclass(frozen=True, slots=True)
class Resumption(Change):
    """The changes of a job's next run; its `spec` takes the place of the earlier one's."""

    spec: JobSpec | None = None


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance, as people see it."""

    id: str
    job: str
    offer: str
    phase: InstancePhase
    devices: int
    usd_per_hour: Decimal
    requested_seconds: float
    reclaim_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision that was made, and why. `current` and `target` are None where nothing is held.

    `ground` is why in a word or two, where the policy tells grounds apart; `note`, in the reason
    too, is what can't be kept.
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


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened to a job or, without one, to the fleet."""

    at_seconds: float
    job: str | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, as people see it. `goodput_predicted` is the model's for what is held.

    `false_starts` tell of offers that are not ordered for now: what was started there ended.
    `hands_off` says why what is decided for it is not done, if it is not. `weight` is how many
    times what it gains counts where jobs compete, by `person`'s share and its `priority`. A job
    with a `study` is one of its trials. `trouble` is what fails for this job now, if anything:
    its planning, an order or a release. `alarm` says that its measured step times contradict the
    model that it is planned by. `is_sessionless`: its script has run for a while without a
    training session, so it runs on one instance and its progress is unknown. `trial_ending` is how
    the trial of a stopped job ended, if it did.
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


@dataclass(frozen=True, slots=True)
class ForecastView:
    """A job held at one fixed size from start to end, as the fitted model predicts it."""

    allocation: Allocation
    measured: bool
    seconds: float
    seconds_90: float
    usd: float
    usd_90: float


@dataclass(frozen=True, slots=True)
class FleetView:
    """What is offered, what limits all jobs, what is held, and how the controller is.

    Of providers that are `silent` it is not known now what runs there. `strays` are instances of
    this deployment, by their clouds' ids, that nobody ordered; they are being ended. `refusals`
    say why what is `unavailable` was refused, by offer. `hands_off` says why it carries none of
    its decisions out, if it does not. Since it started `failed_plans` were not made, and
    `solver_failures` were made without their solver.
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


@dataclass(frozen=True, slots=True)
class OfferView:
    """An offer with its price: where that is from, how old it is, and whether it may have moved.

    `is_unavailable`: it was refused lately, and is not asked for now.
    """

    offer: Offer
    price_source: str
    price_age_seconds: float | None
    is_stale: bool
    is_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class OffersView:
    """All that is offered; `refused` (offer -> reason) are left out for their prices."""

    offers: tuple[OfferView, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invitation:
    """With this token a person is let in, and every earlier one of theirs is no good any more."""

    person: str
    token: str


@dataclass(frozen=True, slots=True)
class TransferView:
    """What of the costs was for jobs' files on their way between networks, likewise grouped."""

    total_usd: Decimal
    by_job: Mapping[str, Decimal]
    by_offer: Mapping[str, Decimal]
    by_day: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class CostView:
    """What was spent so far: in all, by job, by offer, by day, month (UTC, ISO) and person.

    Instances of `paid_already` offers cost nothing more. `transfer` is None where there was none.
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


EVERY_INSTANCE: Final = "*"


@dataclass(frozen=True, slots=True)
class LogPart:
    """What one instance wrote from `offset` on; `next_offset` is where to read on.

    `times` are (place, seconds): from that character of the text on, the controller received it
    at that time.
    """

    instance: str
    next_offset: int
    text: str
    times: tuple[tuple[int, float], ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """An instance's agent presents the token that its user data carries. It serves once.

    `proof` is its cloud's word of which instance it is, where the cloud gives it one.
    """

    token: str
    instance: str
    proof: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an instance is to run. `secrets` hold values: they are never stored or logged.

    A `checkpoint_directory` that is not absolute is on the instance's own disk: what counts is
    then in `depot`, a place in a cloud's storage that the `grant` covers. The grant's credential
    is in one file alone, from which the job's own user reads it. `outputs_directory` is where
    copies of the script's files are kept if there is no grant; None keeps none. `checkpoint_owner`
    and `adopts` are as in `TrainingSetup`. `user_number` is the number of the job's OS user: that
    of the study's first job for trials. None, from an older controller, is `job_number`.
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
    """The agent's lasting token, and its work. `drain_seconds` as in `NodeReply`."""

    token: str
    assignment: Assignment
    heartbeat_seconds: float
    lease_seconds: float
    drain_seconds: float


@dataclass(frozen=True, slots=True)
class NodeReport:
    """An agent's heartbeat. Repeated until it was answered: nothing in it counts twice.

    `attempt` is the start of the script that runs or ran last, `started_seconds` when the node
    made it, by its own clock. `is_done`: its part in the attempt is over, and the job's end is for
    another to tell. `is_complete`: the script has ended well, and the job with it. All of it but
    `reclaim_seconds` and `notes` is of `job`; agents that know of one job only name none.
    `transfer` is what the instance has counted until now, or until it left that job; agents that
    do not count tell none. `has_session`: the script has opened a training session. `ending` says
    how a script that `is_complete` has ended, `stop_reason` why before its total; agents of before
    name none.
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


class Wanted(StrEnum):
    """What an instance is to do."""

    RUN = "run"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class NodeReply:
    """The answer to a heartbeat: the same wishes every time, until they change.

    A script that was told to leave is ended after `drain_seconds`. `checkpoint_interval_seconds`
    is for now; None where that of the assignment stays. Where `job` is not the one that the agent
    works for, its instance goes on with that one, whose assignment is to be fetched. Before it
    `may_start` it gets all ready and waits: others of its job, which it can't reach, still train,
    or one has completed it. The script of an instance on standby `pauses`: it leaves, and is
    started again once it may.
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


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request was refused: the name of a class of domain.errors, and its message."""

    error: str
    message: str
    field: str | None = None
