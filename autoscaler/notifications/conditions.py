"""Rules from facts to events and conditions that people should know of; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from autoscaler.domain.budget import BudgetBasis
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.notice import NoticeKey, NoticeKind, UserNotice
from autoscaler.domain.plan import CHANCE_FIGURE, LATE_FIGURE
from autoscaler.domain.report import Failure
from autoscaler.failures.consequences import CONSEQUENCES
from autoscaler.notifications.facts import (
    BudgetFacts,
    JobFacts,
    LimitFacts,
    NoticeFacts,
    StudyFacts,
)
from autoscaler.spec.quantities import format_duration, format_money

_SECONDS_PER_HOUR: Final = 3600.0
_NEARLY_USED: Final = Decimal("0.9")
_ENDED_KINDS: Final = {
    JobPhase.FINISHED: NoticeKind.FINISHED,
    JobPhase.FAILED: NoticeKind.FAILED,
    JobPhase.STOPPED: NoticeKind.STOPPED,
}
# Seconds for which a condition must hold before people are told: estimates and answers fluctuate.
HOLD_SECONDS: Final[Mapping[NoticeKind, float]] = {
    NoticeKind.BUDGET: 120.0,
    NoticeKind.DEADLINE: 120.0,
}
SILENCE_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class NoticeCondition:
    """Condition that holds now. People are told once it has held for `hold_seconds`.

    If it `is_told_once`, they are not told again when it was over and returns.
    """

    kind: NoticeKind
    subject: str
    text: str
    job: JobRecord | None = None
    person: str | None = None
    team: str | None = None
    hold_seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    is_told_once: bool = False

    def notice(self, episode: int, now_seconds: float) -> UserNotice:
        """Return the notice of this condition."""
        key = NoticeKey(self.kind, self.subject, episode)
        if self.job is not None:
            return notice_about(self.job, key, now_seconds, self.text, self.figures)
        return UserNotice(
            key,
            now_seconds,
            self.text,
            person=self.person,
            team=self.team,
            figures=self.figures,
        )


def notice_about(
    job: JobRecord, key: NoticeKey, at_seconds: float, text: str, figures: Mapping[str, float]
) -> UserNotice:
    """Return a notice about a job, with its owner."""
    owner = job.spec.owner
    is_trial = job.spec.study is not None
    return UserNotice(key, at_seconds, text, job.id, owner.person, owner.team, is_trial, figures)


def events(facts: NoticeFacts) -> Iterator[UserNotice]:
    """Yield a notice for each job and study that ended, and for each failure before a retry.

    Only what happened since `facts.since_seconds` counts.
    """
    for item in facts.jobs:
        job = item.job
        if job.phase.is_final:
            if (job.ended_seconds or 0.0) >= facts.since_seconds:
                key = NoticeKey(_ENDED_KINDS[job.phase], job.id)
                text, figures = _ended_text(item), _spent_figures(item)
                yield notice_about(job, key, facts.now_seconds, text, figures)
        elif item.failure is not None and item.failure.failure.attempt < job.attempt:
            key = NoticeKey(NoticeKind.RETRIED, job.id, job.attempt)
            text = _retried_text(job, item.failure.failure)
            yield notice_about(job, key, facts.now_seconds, text, {"attempt": float(job.attempt)})
    for study in facts.studies:
        yield _ended_study(study, facts.now_seconds)


def conditions(facts: NoticeFacts) -> Iterator[NoticeCondition]:
    """Yield all conditions that hold."""
    for item in facts.jobs:
        if item.job.phase is JobPhase.RUNNING and item.stall is not None:
            yield _stalled(item)
        if item.job.phase in (JobPhase.PENDING, JobPhase.RUNNING):
            late = deadline_condition(item, facts.now_seconds)
            if late is not None:
                yield late
    for budget in facts.budgets:
        yield from _over_budget(budget)
    for limit in facts.limits:
        yield from _near_limit(limit)
    yield from _leaks(facts)


def _ended_text(item: JobFacts) -> str:
    job = item.job
    began_seconds = job.started_seconds or job.submitted_seconds
    lasted = format_duration(max((job.ended_seconds or began_seconds) - began_seconds, 0.0))
    spent = f"{_usd(item.spent_usd)} spent"
    cause = "" if job.cause is None else f": {job.cause}"
    if job.phase is JobPhase.FINISHED:
        return f"{job.id} finished after {lasted}, {spent}{_results(job)}."
    if job.phase is JobPhase.STOPPED:
        reason = "" if job.stop_reason is None else f" ({job.stop_reason})"
        return f"{job.id} was stopped{reason} after {lasted}, {spent}{cause or ': on request'}."
    category = "" if item.failure is None else f" ({item.failure.failure.category})"
    starts = "1 start" if job.attempt == 1 else f"{job.attempt} starts"
    return f"{job.id} failed{category} after {lasted} and {starts}, {spent}{cause}."


def _ended_study(study: StudyFacts, now_seconds: float) -> UserNotice:
    """Return the notice of a study's end; a later end has a later key."""
    trials = _trials(study.trials)
    left = f", {study.to_begin} more not begun" if study.to_begin else ""
    best = "" if study.best is None else f", best value {study.best:.4g}"
    spent = f"{_usd(study.spent_usd)} spent"
    if study.left_open:
        cause = study.cause or "on request"
        without = f"{_trials(study.left_open)} without a result"
        text = f"Study {study.name} was stopped with {without} of {study.trials}{left}{best}, "
        text += f"{spent}: {cause}."
    else:
        text = f"Study {study.name} ended after {trials}{left}{best}, {spent}."
    figures = {"spent_usd": float(study.spent_usd), "trials": float(study.trials)}
    if study.left_open:
        figures["left_open"] = float(study.left_open)
    if study.best is not None:
        figures["best"] = study.best
    key = NoticeKey(NoticeKind.STUDY, study.name, int(study.ended_seconds))
    person, team = study.person, study.team
    return UserNotice(key, now_seconds, text, person=person, team=team, figures=figures)


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"


def _results(job: JobRecord) -> str:
    """Return the metrics that the script reported last, as the end of a phrase."""
    metrics = {} if job.report is None else job.report.metrics
    return "".join(f", {name} {value:.4g}" for name, value in metrics.items())


def _retried_text(job: JobRecord, failure: Failure) -> str:
    rule = CONSEQUENCES[failure.category]
    return (
        f"Start {failure.attempt} of {job.id} failed ({failure.category}): {failure.cause}. It is "
        f"retried {rule.retry}, because {rule.words}: start {job.attempt} follows."
    )


def _spent_figures(item: JobFacts) -> Mapping[str, float]:
    job = item.job
    began_seconds = job.started_seconds or job.submitted_seconds
    lasted_seconds = max((job.ended_seconds or began_seconds) - began_seconds, 0.0)
    return {"spent_usd": float(item.spent_usd), "lasted_seconds": lasted_seconds}


def _stalled(item: JobFacts) -> NoticeCondition:
    job = item.job
    text = (
        f"{job.id} costs {_usd(item.usd_per_hour)}/h and makes no progress: {item.stall}. "
        f"{_usd(item.spent_usd)} spent so far."
    )
    figures = {"usd_per_hour": float(item.usd_per_hour), "spent_usd": float(item.spent_usd)}
    return NoticeCondition(NoticeKind.STALLED, job.id, text, job, figures=figures)


def deadline_condition(item: JobFacts, now_seconds: float) -> NoticeCondition | None:
    """Return the condition of a job that has missed its deadline or may miss it; None if neither.

    Its figures have `late_seconds` if the job has missed it, or is expected to.
    """
    job, objective = item.job, item.job.spec.objective
    if objective.deadline_seconds is None:
        return None
    ends = format_duration(abs(objective.deadline_seconds - now_seconds))
    asked = f"{objective.confidence:.0%}"
    known = {} if item.decision is None else item.decision.figures
    late_seconds, chance = known.get(LATE_FIGURE), known.get(CHANCE_FIGURE)
    if late_seconds is None and chance is None and item.left_seconds is not None:
        predicted_seconds = now_seconds + item.left_seconds - objective.deadline_seconds
        late_seconds = predicted_seconds if predicted_seconds > 0 else None
    if objective.deadline_seconds <= now_seconds:
        text = f"{job.id} has missed its deadline by {ends} and is not done."
        late_seconds = now_seconds - objective.deadline_seconds
    elif late_seconds is not None:
        by = f", {format_duration(late_seconds)} late" if late_seconds >= 1 else ""
        text = f"{job.id} is expected to miss its deadline in {ends}{by}, at {asked}."
    elif chance is not None and chance < objective.confidence:
        text = (
            f"{job.id} keeps its deadline in {ends} with a chance of only {chance:.0%}; "
            f"{asked} asked."
        )
    else:
        return None
    figures = {"deadline_seconds": objective.deadline_seconds}
    if late_seconds is not None:
        figures["late_seconds"] = late_seconds
    if chance is not None:
        figures["chance"] = chance
    hold_seconds = HOLD_SECONDS[NoticeKind.DEADLINE]
    return NoticeCondition(
        NoticeKind.DEADLINE, job.id, text, job, hold_seconds=hold_seconds, figures=figures
    )


def _over_budget(budget: BudgetFacts) -> Iterator[NoticeCondition]:
    """Yield the condition of a budget that is probably used up before its work or month ends."""
    spent_usd, limit_usd = budget.spent_usd, budget.budget_usd
    rate = f"at {_usd(budget.usd_per_hour)}/h"
    used = f"{_usd(spent_usd)} of {_usd(limit_usd)} spent"
    predicted_usd = _predicted_usd(budget)
    name = f"The budget of {_budget_name(budget)}"
    if predicted_usd is not None and predicted_usd > limit_usd:
        text = f"{name} does not last: {used}, {rate}, and about {_needed(budget, predicted_usd)}."
    elif predicted_usd is None and spent_usd >= _NEARLY_USED * limit_usd and budget.usd_per_hour:
        hours = float(max(limit_usd - spent_usd, Decimal(0)) / budget.usd_per_hour)
        lasts = format_duration(hours * _SECONDS_PER_HOUR)
        text = f"{name} is nearly used up: {used}, and {rate} the rest lasts {lasts}."
    else:
        return
    figures = {
        "budget_usd": float(limit_usd),
        "spent_usd": float(spent_usd),
        "usd_per_hour": float(budget.usd_per_hour),
    }
    if predicted_usd is not None:
        figures["predicted_usd"] = float(predicted_usd)
    yield NoticeCondition(
        NoticeKind.BUDGET,
        " ".join(part for part in (budget.scope, budget.name, budget.month) if part),
        text,
        budget.job,
        budget.person,
        budget.team,
        HOLD_SECONDS[NoticeKind.BUDGET],
        figures,
        is_told_once=budget.month is not None,
    )


def _near_limit(limit: LimitFacts) -> Iterator[NoticeCondition]:
    """Yield the condition of a limit in all or by the hour that is nearly or wholly used."""
    owner = "the deployment" if limit.scope == "fleet" else f"{limit.scope} {limit.name}"
    if limit.basis is BudgetBasis.HOUR:
        suffix = "by the hour"
        if limit.used < _NEARLY_USED * limit.limit:
            return
        text = (
            f"Instances of {owner} cost {_usd(limit.used)}/h of at most {_usd(limit.limit)}/h: "
            f"jobs get more only when others release some, unless {limit.way_out}."
        )
    elif limit.is_used_up:
        suffix = "in all, used up"
        text = (
            f"The budget of {owner} of {_usd(limit.limit)} in all is used up: its jobs wait until "
            f"{limit.way_out}."
        )
    elif limit.used >= _NEARLY_USED * limit.limit:
        suffix = "in all"
        text = (
            f"The budget of {owner} in all is nearly used up: {_usd(limit.used)} of "
            f"{_usd(limit.limit)} spent, at {_usd(limit.usd_per_hour)}/h. Then its jobs "
            f"wait, unless {limit.way_out}."
        )
    else:
        return
    unit = "usd_per_hour" if limit.basis is BudgetBasis.HOUR else "usd"
    figures = {f"limit_{unit}": float(limit.limit), "usd_per_hour": float(limit.usd_per_hour)}
    if limit.basis is not BudgetBasis.HOUR:
        figures["spent_usd"] = float(limit.used)
    yield NoticeCondition(
        NoticeKind.BUDGET,
        " ".join(part for part in (limit.scope, limit.name, suffix) if part),
        text,
        person=limit.person,
        team=limit.team,
        hold_seconds=HOLD_SECONDS[NoticeKind.BUDGET],
        figures=figures,
    )


def _predicted_usd(budget: BudgetFacts) -> Decimal | None:
    """Return the cost at the end of the work or the month; None if that is unknown."""
    if budget.expected_usd is not None:
        return Decimal(str(budget.expected_usd[1]))
    if budget.needed_usd is not None:
        return Decimal(str(budget.needed_usd))
    if budget.left_seconds is None:
        return None
    hours = Decimal(str(budget.left_seconds / _SECONDS_PER_HOUR))
    return budget.spent_usd + budget.usd_per_hour * hours


def _needed(budget: BudgetFacts, predicted_usd: Decimal) -> str:
    most = _usd(predicted_usd)
    if budget.expected_usd is not None:
        least = _usd(Decimal(str(budget.expected_usd[0])))
        between = most if least == most else f"{least} to {most}"
        return f"{between} needed for the whole month"
    if budget.left_seconds is None:
        return f"{most} needed in all"
    return f"{most} needed until its end in {format_duration(budget.left_seconds)}"


def _budget_name(budget: BudgetFacts) -> str:
    name = "the deployment" if budget.scope == "fleet" else f"{budget.scope} {budget.name}"
    return name if budget.month is None else f"{name} for {budget.month}"


def _leaks(facts: NoticeFacts) -> Iterator[NoticeCondition]:
    """Yield the conditions under which instances may cost money without work."""
    for stray in sorted(facts.strays):
        text = (
            f"The instance {stray} of this deployment runs without an order and is being ended. "
            "If this notice comes again, look at it in its cloud's console."
        )
        yield NoticeCondition(NoticeKind.LEAK, stray, text)
    for provider in facts.silent:
        if provider.instances:
            text = (
                f"{provider.name} does not list its instances: {provider.instances} of this "
                f"deployment at {_usd(provider.usd_per_hour)}/h can't be seen or ended there."
            )
            figures = {"usd_per_hour": float(provider.usd_per_hour)}
            yield NoticeCondition(
                *(NoticeKind.LEAK, f"provider {provider.name}", text),
                hold_seconds=SILENCE_SECONDS,
                figures=figures,
            )
    for instance, seconds in sorted(facts.overdue.items()):
        text = (
            f"The instance {instance} was to end {format_duration(seconds)} ago and still runs: "
            "its cloud may have refused to end it; castor status has the error."
        )
        yield NoticeCondition(
            NoticeKind.LEAK, instance, text, figures={"overdue_seconds": seconds}
        )


def _usd(amount: Decimal) -> str:
    """Return an amount with cents, below a cent with two digits."""
    if 0 < amount < Decimal("0.01"):
        return format_money(float(f"{amount:.2g}"))
    return format_money(amount.quantize(Decimal("0.01")))
