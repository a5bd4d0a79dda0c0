"""Rules from facts to notices."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.budget import BudgetBasis
from autoscaler.domain.job import JobPhase, JobRecord, StopReason
from autoscaler.domain.notice import NoticeKey, NoticeKind
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import CHANCE_FIGURE, LATE_FIGURE, Action, Decision
from autoscaler.domain.report import Failure, FailureCategory
from autoscaler.notifications.conditions import NoticeCondition, conditions, events
from autoscaler.notifications.episodes import QUIET_SECONDS, Episodes
from autoscaler.notifications.facts import (
    BudgetFacts,
    JobFacts,
    LimitFacts,
    NoticeFacts,
    SilentProvider,
    StudyFacts,
)
from autoscaler.store.repositories.notices import KnownNotice
from autoscaler.store.repositories.reports import FailureRecord
from tests.conformance.store_examples import NOW, report, spec

HOUR = 3600.0


def job(phase: JobPhase = JobPhase.RUNNING, **changes: object) -> JobRecord:
    ended_seconds = NOW if phase.is_final else None
    record = JobRecord("digits", 1, replace(spec(), person="ada", team="nlp"), phase, NOW - HOUR)
    record = replace(record, started_seconds=NOW - HOUR, ended_seconds=ended_seconds)
    return replace(record, **changes)  # type: ignore[arg-type]


def facts(*jobs: JobFacts, **changes: object) -> NoticeFacts:
    return NoticeFacts(NOW, NOW - 60, jobs, **changes)  # type: ignore[arg-type]


def job_facts(record: JobRecord, **changes: object) -> JobFacts:
    return JobFacts(record, Decimal("3.4199"), Decimal("1.25"), **changes)  # type: ignore[arg-type]


def failure(attempt: int = 1) -> FailureRecord:
    category = FailureCategory.EXCEPTION
    found = Failure("digits-0-1", attempt, 1, "ValueError: x", "s", 7, category=category)
    return FailureRecord("digits", NOW - 10, found)


def budget(**changes: object) -> BudgetFacts:
    values: dict[str, object] = {
        "scope": "job",
        "name": "digits",
        "budget_usd": Decimal(10),
        "spent_usd": Decimal(4),
        "usd_per_hour": Decimal(2),
        "job": job(),
    }
    return BudgetFacts(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "kind", "text"),
    [
        (
            job(JobPhase.FINISHED, report=report(metrics={"accuracy": 0.97312})),
            NoticeKind.FINISHED,
            "digits finished after 1h, $3.42 spent, accuracy 0.9731.",
        ),
        (
            job(JobPhase.FAILED, cause="ValueError: x (no retries left)", attempt=3),
            NoticeKind.FAILED,
            "digits failed (exception) after 1h and 3 starts, $3.42 spent: ValueError: x "
            "(no retries left).",
        ),
        (
            job(JobPhase.STOPPED, cause="budget of $5 used up", stop_reason=StopReason.JOB_BUDGET),
            NoticeKind.STOPPED,
            "digits was stopped (job budget) after 1h, $3.42 spent: budget of $5 used up.",
        ),
        (
            job(JobPhase.STOPPED),
            NoticeKind.STOPPED,
            "digits was stopped after 1h, $3.42 spent: on request.",
        ),
    ],
)
def test_a_job_that_ended_is_told_with_its_cost(
    record: JobRecord, kind: NoticeKind, text: str
) -> None:
    last = failure() if kind is NoticeKind.FAILED else None
    (notice,) = events(facts(job_facts(record, failure=last)))
    assert (notice.key, notice.text) == (NoticeKey(kind, "digits"), text)
    assert (notice.job, notice.person, notice.team) == ("digits", "ada", "nlp")
    assert notice.figures == {"spent_usd": 3.4199, "lasted_seconds": HOUR}
    assert not list(events(NoticeFacts(NOW, NOW + 1, (job_facts(record),))))  # it ended before


def test_a_retry_is_told_once_for_each_start() -> None:
    retried = job_facts(job(attempt=2), failure=failure())
    (notice,) = events(facts(retried))
    assert notice.key == NoticeKey(NoticeKind.RETRIED, "digits", 2)
    assert notice.text.startswith(
        "Start 1 of digits failed (exception): ValueError: x. It is retried "
    )
    assert notice.text.endswith("start 2 follows.")
    assert not list(events(facts(job_facts(job(attempt=2)))))
    assert not list(events(facts(job_facts(job(attempt=1), failure=failure()))))


def test_a_stall_is_told_with_its_price() -> None:
    (condition,) = conditions(facts(job_facts(job(), stall="no step for 20 min")))
    assert (condition.kind, condition.subject) == (NoticeKind.STALLED, "digits")
    assert condition.text == (
        "digits costs $1.25/h and makes no progress: no step for 20 min. $3.42 spent so far."
    )
    assert not list(conditions(facts(job_facts(job(JobPhase.STOPPING), stall="x"))))


def decided(**figures: float) -> Decision:
    return Decision("digits", Action.HOLD, None, None, "hold", figures=figures)


@pytest.mark.parametrize(
    ("deadline_hours", "figures", "left_seconds", "text"),
    [
        (
            2,
            {LATE_FIGURE: 1200.0},
            None,
            "digits is expected to miss its deadline in 2h, 20m late, at 90%.",
        ),
        (2, {LATE_FIGURE: 0.0}, None, "digits is expected to miss its deadline in 2h, at 90%."),
        (
            2,
            {CHANCE_FIGURE: 0.62},
            None,
            "digits keeps its deadline in 2h with a chance of only 62%; 90% asked.",
        ),
        (2, {CHANCE_FIGURE: 0.9}, 9 * HOUR, None),
        (2, {}, 3 * HOUR, "digits is expected to miss its deadline in 2h, 1h late, at 90%."),
        (2, {}, HOUR, None),
        (2, {}, None, None),
        (-0.5, {}, HOUR, "digits has missed its deadline by 30m and is not done."),
    ],
)
def test_a_deadline_in_danger(
    deadline_hours: float, figures: dict[str, float], left_seconds: float | None, text: str | None
) -> None:
    objective = Objective(deadline_seconds=NOW + deadline_hours * HOUR)
    record = job(spec=replace(spec(), objective=objective))
    item = job_facts(record, decision=decided(**figures), left_seconds=left_seconds)
    found = list(conditions(facts(item)))
    assert [condition.text for condition in found] == ([] if text is None else [text])
    assert all(condition.kind is NoticeKind.DEADLINE for condition in found)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"left_seconds": 2.9 * HOUR}, None),
        (
            {"left_seconds": 4 * HOUR},
            "The budget of job digits does not last: $4 of $10 spent, at $2/h, and about $12 "
            "needed until its end in 4h.",
        ),
        (
            {"needed_usd": 13.5},
            "The budget of job digits does not last: $4 of $10 spent, at $2/h, and about $13.50 "
            "needed in all.",
        ),
        ({"spent_usd": Decimal("8.9")}, None),
        ({"spent_usd": Decimal("9.5"), "left_seconds": 60.0}, None),
        ({"spent_usd": Decimal("9.5"), "usd_per_hour": Decimal(0)}, None),
        (
            {"spent_usd": Decimal("9.5"), "scope": "fleet", "name": "", "job": None},
            "The budget of the deployment is nearly used up: $9.50 of $10 spent, and at $2/h the "
            "rest lasts 15m.",
        ),
        (
            {"scope": "team", "name": "nlp", "month": "2026-11", "expected_usd": (9.2, 12.5)},
            "The budget of team nlp for 2026-11 does not last: $4 of $10 spent, at $2/h, and "
            "about $9.20 to $12.50 needed for the whole month.",
        ),
        (
            {"scope": "fleet", "name": "", "month": "2026-11", "expected_usd": (11.0, 11.0)},
            "The budget of the deployment for 2026-11 does not last: $4 of $10 spent, at $2/h, "
            "and about $11 needed for the whole month.",
        ),
        ({"scope": "team", "name": "nlp", "month": "2026-11", "expected_usd": (4.0, 10.0)}, None),
        ({"scope": "team", "name": "nlp", "month": "2026-11"}, None),
    ],
)
def test_the_pace_of_a_budget(changes: dict[str, object], text: str | None) -> None:
    found = list(conditions(facts(budgets=(budget(**changes),))))
    assert [condition.text for condition in found] == ([] if text is None else [text])


def month_budget(month: str, most_usd: float = 12.5) -> BudgetFacts:
    changes = {"scope": "team", "name": "nlp", "job": None, "team": "nlp"}
    return budget(**changes, month=month, expected_usd=(9.0, most_usd))


def test_a_budget_by_month_is_told_once_a_month_with_its_team() -> None:
    episodes, now_seconds = Episodes(()), NOW
    told = []
    for shown in (
        month_budget("2026-11"),
        month_budget("2026-11", most_usd=9.5),
        month_budget("2026-11"),
        month_budget("2026-12"),
    ):
        for _ in range(2):  # longer than a condition must hold, or be over
            now_seconds += QUIET_SECONDS
            changes = episodes.changes(conditions(facts(budgets=(shown,))), now_seconds)
            for notice in changes.begun:
                episodes.note(notice.key, is_open=True)
                told.append((notice.key.subject, notice.team, notice.person))
            for key in changes.over:
                episodes.note(key, is_open=False)
    assert told == [("team nlp 2026-11", "nlp", None), ("team nlp 2026-12", "nlp", None)]


@pytest.mark.parametrize(
    ("study", "text"),
    [
        (
            StudyFacts("sweep", 12, 0, 0.031249, Decimal("4.2"), "ada", "nlp", NOW),
            "Study sweep ended after 12 trials, best value 0.03125, $4.20 spent.",
        ),
        (
            StudyFacts("sweep", 1, 3, None, Decimal(0), "ada", "nlp", NOW),
            "Study sweep ended after 1 trial, 3 more not begun, $0 spent.",
        ),
        (
            StudyFacts(
                "sweep", 9, 3, 0.5, Decimal(5), "ada", "nlp", NOW, 2, "its budget is used up"
            ),
            "Study sweep was stopped with 2 trials without a result of 9, 3 more not begun, best "
            "value 0.5, $5 spent: its budget is used up.",
        ),
        (
            StudyFacts("sweep", 1, 0, None, Decimal(5), "ada", "nlp", NOW, 1),
            "Study sweep was stopped with 1 trial without a result of 1, $5 spent: on request.",
        ),
    ],
)
def test_a_study_that_ended_is_told_with_its_best_value(study: StudyFacts, text: str) -> None:
    (notice,) = events(facts(studies=(study,)))
    assert notice.key == NoticeKey(NoticeKind.STUDY, "sweep", int(NOW))
    assert (notice.text, notice.person, notice.team) == (text, "ada", "nlp")
    assert not notice.is_trial
    assert notice.figures.get("best") == study.best


def test_leaks() -> None:
    silent = (SilentProvider("aws", 3, Decimal("12.4")), SilentProvider("gcp", 0, Decimal(0)))
    leaks = list(
        conditions(facts(silent=silent, strays=frozenset({"i-1"}), overdue={"digits-0-1": 2000.0}))
    )
    assert [(leak.kind, leak.subject) for leak in leaks] == [
        (NoticeKind.LEAK, "i-1"),
        (NoticeKind.LEAK, "provider aws"),
        (NoticeKind.LEAK, "digits-0-1"),
    ]
    assert "3 of this deployment at $12.40/h" in leaks[1].text
    assert "33m20s ago" in leaks[2].text


def stalled(hold_seconds: float = 0.0) -> NoticeCondition:
    return NoticeCondition(
        NoticeKind.STALLED, "digits", "no step", job(), hold_seconds=hold_seconds
    )


def test_a_condition_is_told_once_it_has_held_long_enough() -> None:
    episodes = Episodes(())
    assert not episodes.changes([stalled(60.0)], NOW).begun
    assert not episodes.changes([stalled(60.0)], NOW + 59).begun
    assert not episodes.changes([], NOW + 60).begun
    assert not episodes.changes([stalled(60.0)], NOW + 61).begun
    (notice,) = episodes.changes([stalled(60.0)], NOW + 121).begun
    assert notice.key == NoticeKey(NoticeKind.STALLED, "digits", 1)


def test_a_condition_that_flickers_is_one_episode_and_a_later_one_is_another() -> None:
    episodes = Episodes([KnownNotice(NoticeKey(NoticeKind.STALLED, "digits", 3), is_open=True)])
    assert not episodes.changes([stalled()], NOW).begun  # as after a restart
    assert not episodes.changes([], NOW + 10).over
    assert not episodes.changes([stalled()], NOW + 20).begun
    assert not episodes.changes([], NOW + 30).over
    (key,) = episodes.changes([], NOW + 30 + QUIET_SECONDS).over
    assert key.episode == 3
    episodes.note(key, is_open=False)
    assert not episodes.changes([], NOW + 40 + QUIET_SECONDS).over
    (notice,) = episodes.changes([stalled()], NOW + 50 + QUIET_SECONDS).begun
    assert notice.key.episode == 4


TOTAL, BY_HOUR = BudgetBasis.TOTAL, BudgetBasis.HOUR


@pytest.mark.parametrize(
    ("basis", "used", "is_used_up", "told"),
    [
        (TOTAL, "8.99", False, None),
        (
            *(TOTAL, "9", False),
            "team nlp in all: The budget of team nlp in all is nearly used up: $9 of $10 spent, "
            "at $2/h. Then its jobs wait, unless castor budget set team:nlp raises it.",
        ),
        (
            *(TOTAL, "9.7", True),
            "team nlp in all, used up: The budget of team nlp of $10 in all is used up: its jobs "
            "wait until castor budget set team:nlp raises it.",
        ),
        (BY_HOUR, "8.99", False, None),
        (
            *(BY_HOUR, "9.5", False),
            "team nlp by the hour: Instances of team nlp cost $9.50/h of at most $10/h: jobs get "
            "more only when others release some, unless castor budget set team:nlp raises it.",
        ),
    ],
)
def test_limits_in_all_and_by_the_hour_are_told_when_nearly_used(
    basis: BudgetBasis, used: str, is_used_up: bool, told: str | None
) -> None:
    limit = LimitFacts(
        *("team", "nlp", basis, Decimal(10), Decimal(used), Decimal(2)),
        *("castor budget set team:nlp raises it", is_used_up, None, "nlp"),
    )
    found = list(conditions(facts(limits=(limit,))))
    assert [f"{each.subject}: {each.text}" for each in found] == ([] if told is None else [told])
    assert all(each.team == "nlp" and each.hold_seconds == 120.0 for each in found)
