"""Notices of what needs a person in a fleet, and its state in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import Final

from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.predicted_goodput import remaining_seconds_of
from autoscaler.domain.job import JobPhase, JobRecord, StopReason
from autoscaler.domain.job_names import exact_name
from autoscaler.notifications.conditions import deadline_condition
from autoscaler.notifications.facts import JobFacts
from autoscaler.service.pages.fleet_summary import BarredStep, FleetCount, limit_lines
from autoscaler.service.pages.formats import (
    billed,
    counted,
    duration,
    duration_band,
    rate,
    relative,
)
from autoscaler.wire.budget_messages import BudgetView

LATE_TICK_SECONDS: Final = 120.0
"""Age of the last tick from which the controller's loop counts as stopped."""

MOST_NAMED: Final = 3
"""Most jobs of a topic that have a notice of their own."""

_ALL_NOTICES: Final = "#notices"
_ZERO: Final = Decimal(0)

Finishes = Mapping[str, tuple[float, float]]
_NO_FINISHES: Final[Finishes] = {}


class NoticeLevel(StrEnum):
    """Urgency of a notice: it is wrong now, needs a look, or is good to know."""

    DANGER = "danger"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class NoticeTopic:
    """Kind of notices, in words for one (with its subject) and for several (with their number).

    `list_address` has all of them; empty: the list of notices.
    """

    level: NoticeLevel
    single: str
    several: str
    list_address: str = ""


@dataclass(frozen=True, slots=True)
class FleetNotice:
    """`count` conditions that a person should know of. `address` has more; empty: nowhere."""

    topic: NoticeTopic
    subject: str
    text: str
    address: str = ""
    count: int = 1

    @property
    def level(self) -> NoticeLevel:
        """Urgency of the notice."""
        return self.topic.level


_DANGER, _WARNING, _NOTE = NoticeLevel.DANGER, NoticeLevel.WARNING, NoticeLevel.NOTE
_STANDS = NoticeTopic(_DANGER, "the controller stands still", "")
_PLAN = NoticeTopic(_DANGER, "the last plan failed", "")
_SILENT = NoticeTopic(_DANGER, "{} is silent", "{} providers and regions are silent", "/offers")
_STALL = NoticeTopic(_DANGER, "{} makes no progress", "{} jobs make no progress")
_MISSED = NoticeTopic(_DANGER, "{} misses its deadline", "{} jobs miss their deadlines")
_STUDY = NoticeTopic(_DANGER, "study {} is in trouble", "{} studies are in trouble", "/studies")
_ENDED_LATE = NoticeTopic(_WARNING, "{} ended late", "{} jobs ended late", "/jobs")
_MAY_MISS = NoticeTopic(_WARNING, "{} may miss its deadline", "{} deadlines are in danger")
_FAILED = NoticeTopic(_WARNING, "{} failed", "{} jobs failed", "/jobs?phase=failed")
_OVER = NoticeTopic(_WARNING, "{} used up its budget", "{} jobs used up their budgets")
_BUDGET = NoticeTopic(_WARNING, "the budget of {} is used up", "{} budgets are used up", "/costs")
_FROZEN = NoticeTopic(_WARNING, "the fleet is frozen", "")
_OBSERVES = NoticeTopic(_WARNING, "nothing is carried out", "")
_STRAYS = NoticeTopic(_WARNING, "{} without a job", "")
_PROVIDER = NoticeTopic(_WARNING, "{} reports trouble", "{} troubles of providers", "/offers")
_TROUBLE = NoticeTopic(_WARNING, "{} has trouble", "{} jobs have trouble")
_SPEED = NoticeTopic(_WARNING, "{} has another speed than predicted", "{} speeds mispredicted")
_REFUSED = NoticeTopic(_NOTE, "", "")
_QUOTA = NoticeTopic(_NOTE, "", "")
_LIMIT = NoticeTopic(_NOTE, "", "")
_BUDGET_OF_STOP: Final = {
    StopReason.JOB_BUDGET: "its budget",
    StopReason.STUDY_BUDGET: "its study's budget",
    StopReason.FLEET_BUDGET: "the fleet's budget",
}


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs that ended lately and need a look: failed ones, all in number, and others.

    `late` ended after their deadlines, `over_budget` were stopped by budgets.
    """

    failed: tuple[JobRecord, ...] = ()
    failed_count: int = 0
    late: tuple[JobRecord, ...] = ()
    over_budget: tuple[JobRecord, ...] = ()

    @classmethod
    def of(cls, ended: Iterable[JobRecord], failed_count: int) -> EndedJobs:
        """Return those of the ended jobs that need a look."""
        records = tuple(ended)
        return cls(
            tuple(job for job in records if job.phase is JobPhase.FAILED)[:MOST_NAMED],
            failed_count,
            tuple(job for job in records if job.phase is JobPhase.FINISHED and was_late(job)),
            tuple(job for job in records if job.stop_reason is not None),
        )


@dataclass(frozen=True)
class FleetFacts:
    """Facts that notices follow from, at `now_seconds`.

    `frozen_by` is the person who froze the fleet; None: it is not frozen.
    """

    status: ControllerStatus
    count: FleetCount
    now_seconds: float
    alive: Sequence[JobRecord] = ()
    ended: EndedJobs = EndedJobs()
    budgets: Sequence[BudgetView] = ()
    frozen_by: str | None = None

    @cached_property
    def due(self) -> Sequence[JobRecord]:
        """Jobs that have not ended and are to train until a deadline."""
        return [
            job
            for job in self.alive
            if job.spec.objective.deadline_seconds is not None
            and job.phase is not JobPhase.STOPPING
        ]

    @cached_property
    def late(self) -> Mapping[str, FleetNotice]:
        """Notices of the deadlines of which people are notified, by job."""
        judged = ((job.id, _of_condition(job, self)) for job in self.due)
        return {job: notice for job, notice in judged if notice is not None}


def notices(
    facts: FleetFacts, finishes: Finishes = _NO_FINISHES, barred: Sequence[BarredStep] = ()
) -> tuple[FleetNotice, ...]:
    """Return what a person should know of, the most urgent first; empty if all is well.

    `finishes` are the ends of 90 % of cases of predicted jobs, since the epoch, by job.
    """
    known = [
        *_of_controller(facts),
        *_of_providers(facts),
        *_of_jobs(facts.status),
        *deadline_notices(facts, finishes),
        *_of_ended(facts.ended),
        *_of_budgets(facts.budgets),
        *_of_limits(facts, barred),
    ]
    levels = list(NoticeLevel)
    return tuple(sorted(known, key=lambda notice: levels.index(notice.level)))


def _of_controller(facts: FleetFacts) -> Iterator[FleetNotice]:
    status, ticked_seconds = facts.status, facts.status.ticked_seconds
    if ticked_seconds is not None and facts.now_seconds - ticked_seconds > LATE_TICK_SECONDS:
        age = duration(facts.now_seconds - ticked_seconds)
        text = f"The controller has not looked at the fleet for {age}: nothing is decided."
        yield FleetNotice(_STANDS, "", text)
    if status.planning_trouble is not None:
        text = f"The controller's {status.planning_trouble}."
        yield FleetNotice(_PLAN, "", text)
    for study, trouble in sorted(status.study_troubles.items()):
        text = f"Study {study} is not planned: {trouble}."
        yield FleetNotice(_STUDY, study, text, f"/studies/{study}")
    if facts.frozen_by is not None:
        text = f"Nothing is launched or released: frozen by {facts.frozen_by}."
        yield FleetNotice(_FROZEN, "", text, "#fleet-actions")
    elif status.hands_off is not None:
        text = f"Nothing is launched or released: {status.hands_off}."
        yield FleetNotice(_OBSERVES, "", text)


def _of_providers(facts: FleetFacts) -> Iterator[FleetNotice]:
    status, count = facts.status, facts.count
    for provider, state in sorted(status.providers.items()):
        if not state.is_silent:
            continue
        instances = counted(count.of_provider[provider], "instance")
        cost = billed(count.provider_rates.get(provider, _ZERO))
        text = f"{provider} is silent: its {instances} ({cost}/h) can't be seen or changed now"
        why = "".join(f". {failure}" for failure in state.failures)
        yield FleetNotice(_SILENT, provider, f"{text}{why}.", "/offers")
    for provider, state in status.providers.items():
        condition = state.condition
        if state.failures and not state.is_silent:
            text = f"Prices of {provider} are as last seen. {'. '.join(state.failures)}."
            yield FleetNotice(_PROVIDER, provider, text, "/offers")
        for scope, reason in condition.silent_scopes.items():
            text = (
                f"{scope} of {provider} is silent, and its instances are as last seen: {reason}."
            )
            yield FleetNotice(_SILENT, scope, text, "/offers")
        for trouble in (*condition.troubles, *condition.stranger_troubles):
            yield FleetNotice(_PROVIDER, provider, f"{provider}: {trouble}.", "/offers")
        yield from _of_notes(provider, condition.notes)
    if status.strays:
        instances = counted(len(status.strays), "instance")
        text = f"{instances} of this controller that no job holds: being ended."
        yield FleetNotice(_STRAYS, instances, text)
    refused = sorted(status.unavailable)
    if refused:
        text = f"{counted(len(refused), 'offer')} refused by the clouds now: {named(refused)}."
        yield FleetNotice(_REFUSED, "", text, "/offers")


def _of_notes(provider: str, notes: Sequence[str]) -> Iterator[FleetNotice]:
    for note in notes[:MOST_NAMED]:
        yield FleetNotice(_QUOTA, provider, f"{provider}: {note}.", "/offers")
    rest = len(notes) - MOST_NAMED
    if rest > 0:
        text = f"{provider} has {counted(rest, 'more note')}: castor check shows all."
        yield FleetNotice(_QUOTA, provider, text, "/offers", rest)


def _of_topic(
    topic: NoticeTopic, items: Sequence[tuple[str, str]], text: str, rest: str, address: str
) -> Iterator[FleetNotice]:
    """Yield notices of the first jobs of a topic, and one of all others.

    Args:
        topic: the topic.
        items: jobs, each with the words of its notice.
        text: text of a notice, with places for the job and its words.
        rest: text on the others, with a place for their number.
        address: list of the others.
    """
    for job, words in items[:MOST_NAMED]:
        yield _of_job(topic, job, text.format(job, words))
    others = len(items) - MOST_NAMED
    if others > 0:
        number = counted(others, "further job")
        yield FleetNotice(topic, "", rest.format(number), address, others)


def _of_jobs(status: ControllerStatus) -> Iterator[FleetNotice]:
    yield from _of_topic(
        _STALL,
        sorted(status.stalls.items()),
        "{} makes no progress: {}.",
        "{} without progress.",
        "/jobs?phase=running",
    )
    yield from _of_topic(
        _TROUBLE,
        sorted(status.job_troubles.items()),
        "{}: {}.",
        "{} with trouble.",
        "/jobs?phase=alive",
    )
    if len(status.alarms) == 1:
        (job,) = status.alarms
        text = f"{job} steps at another speed than its model predicts."
        yield _of_job(_SPEED, job, text)
    elif status.alarms:
        text = f"{len(status.alarms)} jobs step at another speed than their models predict."
        yield FleetNotice(_SPEED, "", text, "/jobs?phase=running", len(status.alarms))


def deadline_notices(
    facts: FleetFacts, finishes: Finishes = _NO_FINISHES
) -> Iterator[FleetNotice]:
    """Yield the missed deadlines of jobs that have not ended, and those in danger.

    They are the conditions of which people are notified, and predicted ends beyond deadlines.
    """
    late = [
        notice
        for job in facts.due
        if (notice := facts.late.get(job.id) or _of_finish(job, facts, finishes)) is not None
    ]
    for topic in (_MISSED, _MAY_MISS):
        of_topic = [notice for notice in late if notice.topic is topic]
        yield from of_topic[:MOST_NAMED]
        rest = len(of_topic) - MOST_NAMED
        if rest > 0:
            text = f"{topic.several.format(f'{rest:,} more')}."
            yield FleetNotice(topic, "", text, "/jobs?phase=alive", rest)


def _of_condition(job: JobRecord, facts: FleetFacts) -> FleetNotice | None:
    decision, left_seconds = facts.status.in_force.get(job.id), remaining_seconds_of(job, None)
    known = JobFacts(job, _ZERO, _ZERO, decision=decision, left_seconds=left_seconds)
    condition = deadline_condition(known, facts.now_seconds)
    if condition is None:
        return None
    topic = _MISSED if "late_seconds" in condition.figures else _MAY_MISS
    return _of_job(topic, job.id, condition.text)


def _of_finish(job: JobRecord, facts: FleetFacts, finishes: Finishes) -> FleetNotice | None:
    finish, deadline_seconds = finishes.get(job.id), job.spec.objective.deadline_seconds
    if finish is None or deadline_seconds is None or finish[1] <= deadline_seconds:
        return None
    band = duration_band(*(end - facts.now_seconds for end in finish))
    due = relative(deadline_seconds, facts.now_seconds)
    return _of_job(
        _MAY_MISS, job.id, f"{job.id} ends in {band} by the model; its deadline is {due}."
    )


def _of_ended(ended: EndedJobs) -> Iterator[FleetNotice]:
    for job in ended.failed:
        cause = f": {job.cause}" if job.cause else ""
        yield _of_job(_FAILED, job.id, f"{job.id} failed{cause}.")
    rest = ended.failed_count - len(ended.failed)
    if rest > 0:
        text = f"{counted(rest, 'further job')} failed within the last day."
        yield FleetNotice(_FAILED, "", text, _FAILED.list_address, rest)
    yield from _of_topic(
        _ENDED_LATE,
        [(job.id, _lateness(job)) for job in ended.late],
        "{} finished {} after its deadline.",
        "{} finished after the deadline within the last day.",
        "/jobs?phase=finished",
    )
    yield from _of_topic(
        _OVER,
        [
            (job.id, _BUDGET_OF_STOP[job.stop_reason or StopReason.JOB_BUDGET])
            for job in ended.over_budget
        ],
        "{} was stopped, since {} is used up.",
        "{} stopped by budgets within the last day.",
        "/jobs?phase=stopped",
    )


def _lateness(job: JobRecord) -> str:
    return duration((job.ended_seconds or 0.0) - (job.spec.objective.deadline_seconds or 0.0))


def _of_budgets(budgets: Sequence[BudgetView]) -> Iterator[FleetNotice]:
    for budget in budgets:
        if budget.used_up is not None:
            subject = "the fleet" if budget.scope == "fleet" else budget.scope.replace(":", " ")
            text = f"{budget.used_up[:1].upper()}{budget.used_up[1:]}."
            yield FleetNotice(_BUDGET, subject, text, "/costs#budgets-title")


def _of_limits(facts: FleetFacts, barred: Sequence[BarredStep]) -> Iterator[FleetNotice]:
    shown = limit_lines(facts.status, facts.count, barred)
    lines = [line for line in shown if line.worth_usd_per_hour > 0]
    if lines:
        names = named([line.name for line in lines])
        full = f"{counted(len(lines), 'limit')} hold{'s' if len(lines) == 1 else ''} jobs back"
        text = f"{full}: {names}. {lines[0].sentence}"
        yield FleetNotice(_LIMIT, "", text, "#limits-title")


def _of_job(topic: NoticeTopic, job: str, text: str) -> FleetNotice:
    return FleetNotice(topic, job, text, f"/jobs/{exact_name(job)}")


def was_late(job: JobRecord) -> bool:
    """Return whether a job ended after its deadline."""
    deadline_seconds, ended_seconds = job.spec.objective.deadline_seconds, job.ended_seconds
    if deadline_seconds is None or ended_seconds is None:
        return False
    return ended_seconds > deadline_seconds


@dataclass(frozen=True, slots=True)
class HeadlinePart:
    """Words of the headline, with the address of more; empty: nowhere."""

    text: str
    address: str


@dataclass(frozen=True, slots=True)
class FleetHeadline:
    """State of the fleet in one sentence: what is wrong, what needs a look, and the work."""

    wrong: tuple[HeadlinePart, ...]
    to_look_at: tuple[HeadlinePart, ...]
    work: str

    @property
    def text(self) -> str:
        """The sentence without its links."""
        parts = [
            f"{words}: {', '.join(part.text for part in listed)}."
            for words, listed in (("Wrong", self.wrong), ("Needs a look", self.to_look_at))
            if listed
        ]
        return " ".join((*(parts or ["Nothing is wrong."]), self.work))


def headline(
    known: Sequence[FleetNotice], count: FleetCount, running: int, waiting: int, starting: int = 0
) -> FleetHeadline:
    """Return the state of the fleet in one sentence.

    The jobs that have not ended run, start on their first instances, or wait without any.
    """
    work = counted(running, "job runs", "jobs run")
    if starting:
        work += f" and {starting:,} {'starts' if starting == 1 else 'start'}"
    work += f" on {counted(sum(count.states.values()), 'instance')}"
    if not running and not count.states:
        work = "Nothing runs and nothing costs"
    elif count.usd_per_hour:
        work += f" for {rate(count.usd_per_hour)}"
    if waiting:
        work += f", {waiting:,} {'waits' if waiting == 1 else 'wait'}"
    return FleetHeadline(_parts(known, _DANGER), _parts(known, _WARNING), f"{work}.")


def _parts(known: Sequence[FleetNotice], level: NoticeLevel) -> tuple[HeadlinePart, ...]:
    """Return a part for each of the first three topics of a level, and one for the rest."""
    of_level = [notice for notice in known if notice.level is level]
    parts = [
        _part(tuple(group)) for _, group in groupby(of_level, key=lambda notice: notice.topic)
    ]
    rest = len(parts) - MOST_NAMED
    if rest > 0:
        parts[MOST_NAMED:] = [HeadlinePart(f"{rest} more", _ALL_NOTICES)]
    return tuple(parts)


def _part(group: Sequence[FleetNotice]) -> HeadlinePart:
    topic, count = group[0].topic, sum(notice.count for notice in group)
    if count == 1:
        (notice,) = group
        return HeadlinePart(topic.single.format(notice.subject), notice.address or _ALL_NOTICES)
    return HeadlinePart(topic.several.format(f"{count:,}"), topic.list_address or _ALL_NOTICES)


def named(names: Sequence[str]) -> str:
    """Return the first three names, and the number of the others."""
    shown = ", ".join(names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"
