"""Notices of a fleet by their level, and the sentence at the top of the first page."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.offers.market import ProviderState
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec, StopReason
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.service.pages.fleet import LateEnds
from autoscaler.service.pages.fleet_notices import (
    EndedJobs,
    FleetFacts,
    NoticeLevel,
    headline,
    notices,
)
from autoscaler.service.pages.fleet_summary import FleetCount
from autoscaler.store.memory.store import memory_store
from autoscaler.wire.budget_messages import BudgetView
from providers.base import Condition
from tests.controller.cloud import offer
from tests.service.agents import SPEC, training_report
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor

NOW = 1_000_000.0
DAY = 86_400.0


NONE_ENDED = EndedJobs()
SILENT = {"file": ProviderState(is_silent=True)}


def facts(ended: EndedJobs = NONE_ENDED, **changes: Any) -> FleetFacts:
    """Return facts of a fleet; `changes` are of its status or of the facts."""
    count = FleetCount()
    count.of_provider["file"] = 3
    count.provider_rates["file"] = Decimal("1.5")
    known = FleetFacts(ControllerStatus(offers=(offer(),), ticked_seconds=NOW), count, NOW)
    own = {name: changes.pop(name) for name in tuple(changes) if hasattr(known, name)}
    return replace(known, status=replace(known.status, **changes), ended=ended, **own)


def texts(known: FleetFacts, **changes: Any) -> list[str]:
    return [f"{each.level}: {each.text}" for each in notices(known, **changes)]


def sentence(known: FleetFacts, **changes: Any) -> str:
    return headline(notices(known, **changes), FleetCount(), 0, 0).text


def job(name: str, phase: JobPhase = JobPhase.RUNNING, **changes: Any) -> JobRecord:
    objective = changes.pop("objective", Objective())
    return JobRecord(name, 1, JobSpec(name, ("x",), objective=objective), phase, 0.0, **changes)


def due(name: str, in_seconds: float, **changes: Any) -> JobRecord:
    return job(name, objective=Objective(deadline_seconds=NOW + in_seconds), **changes)


def test_a_healthy_fleet_has_nothing_to_tell() -> None:
    assert texts(facts()) == []
    count = FleetCount()
    assert headline((), count, 0, 0).text == "Nothing is wrong. Nothing runs and nothing costs."
    count.states["working"] = 2
    count.usd_per_hour = Decimal("3.5")
    text = "Nothing is wrong. 1 job runs on 2 instances for $3.50/h, 1 waits."
    assert headline((), count, 1, 1).text == text
    text = "Nothing is wrong. 1 job runs and 2 start on 2 instances for $3.50/h."
    assert headline((), count, 1, 0, 2).text == text


def test_what_needs_a_person_comes_first() -> None:
    known = facts(
        providers=SILENT,
        stalls={"birds": "no step for 14 min"},
        unavailable=frozenset({"small"}),
        frozen_by="ada",
        job_troubles={"words": "no image"},
        strays=frozenset({"i-1"}),
        planning_trouble="planning failed: the store is away",
        ticked_seconds=NOW - 600,
    )
    found = texts(known)
    levels = [text.partition(":")[0] for text in found]
    assert levels == sorted(levels, key=list(NoticeLevel).index)
    assert (
        "danger: file is silent: its 3 instances ($1.50/h) can't be seen or changed now." in found
    )
    assert "danger: birds makes no progress: no step for 14 min." in found
    assert any("has not looked at the fleet for 10 min" in text for text in found)
    assert sentence(known) == (
        "Wrong: the controller stands still, the last plan failed, file is silent, 1 more. "
        "Needs a look: the fleet is frozen, 1 instance without a job, words has trouble. "
        "Nothing runs and nothing costs."
    )


def test_each_part_of_the_sentence_leads_to_more() -> None:
    ended = EndedJobs.of([job("a", JobPhase.FAILED), job("b", JobPhase.FAILED)], 2)
    known = facts(ended, stalls={"birds": "no step"}, providers=SILENT, frozen_by="ada")
    shown = headline(notices(known), FleetCount(), 0, 0)
    assert [(part.text, part.address) for part in (*shown.wrong, *shown.to_look_at)] == [
        ("file is silent", "/offers"),
        ("birds makes no progress", "/jobs/birds.1"),
        ("the fleet is frozen", "#fleet-actions"),
        ("2 jobs failed", "/jobs?phase=failed"),
    ]
    many = facts(stalls={f"job{number}": "no step" for number in range(5)})
    assert sentence(many).startswith("Wrong: 5 jobs make no progress. ")


def test_a_job_that_failed_lately_is_named_with_its_cause() -> None:
    known = facts(EndedJobs.of([job("a", JobPhase.FAILED, cause="exit 1")], 1))
    assert texts(known) == ["warning: a failed: exit 1."]
    assert sentence(known).startswith("Needs a look: a failed. ")
    many = EndedJobs.of([job(str(number), JobPhase.FAILED) for number in range(9)], 12)
    assert sentence(facts(many)).startswith("Needs a look: 12 jobs failed. ")
    assert texts(facts(many))[-1] == "warning: 9 further jobs failed within the last day."


def test_a_missed_deadline_is_wrong_and_one_in_danger_needs_a_look() -> None:
    missed = facts(alive=[due("birds", -420.0), due("far", DAY)])
    assert texts(missed) == ["danger: birds has missed its deadline by 7m and is not done."]
    assert sentence(missed).startswith("Wrong: birds misses its deadline. ")
    slow = training_report(goodput_measured=1.0)
    late = facts(alive=[due("birds", 600.0, report=slow)])
    assert sentence(late).startswith("Wrong: birds misses its deadline. ")
    ends = {"birds": (NOW + 300.0, NOW + 900.0), "far": (NOW + 300.0, NOW + 900.0)}
    danger = facts(alive=[due("birds", 600.0), due("far", DAY)])
    assert texts(danger, finishes=ends) == [
        "warning: birds ends in 5.0 to 15 min by the model; its deadline is in 10 min."
    ]
    assert sentence(danger, finishes=ends).startswith(
        "Needs a look: birds may miss its deadline. "
    )


def test_a_late_end_and_a_stop_by_a_budget_need_a_look() -> None:
    late = due("birds", -900.0, phase=JobPhase.FINISHED, ended_seconds=NOW - 480.0)
    in_time = due("words", -900.0, phase=JobPhase.FINISHED, ended_seconds=NOW - 1000.0)
    stopped = job("dear", JobPhase.STOPPED, stop_reason=StopReason.JOB_BUDGET)
    known = facts(EndedJobs.of([late, in_time, stopped], 0))
    assert texts(known) == [
        "warning: birds finished 7 min after its deadline.",
        "warning: dear was stopped, since its budget is used up.",
    ]
    assert sentence(known).startswith("Needs a look: birds ended late, dear used up its budget. ")


def test_a_budget_that_is_used_up_needs_a_look() -> None:
    usd = Decimal(10)
    budget = BudgetView("team:ml", usd, None, None, "UTC", 0.0, DAY, usd, None, usd, None, usd)
    assert texts(facts(budgets=[budget])) == []
    used_up = replace(budget, used_up="the budget of team ml is used up: castor budget set")
    known = facts(budgets=[used_up])
    assert texts(known) == ["warning: The budget of team ml is used up: castor budget set."]
    assert sentence(known).startswith("Needs a look: the budget of team ml is used up. ")


@pytest.mark.parametrize(
    ("state", "expected", "first"),
    [
        (
            ProviderState((), Condition(notes=("G: the quota is too small for one: ask",))),
            "note: aws: G: the quota is too small for one: ask.",
            "Nothing is wrong. ",
        ),
        (
            ProviderState((), Condition(silent_scopes={"us-east-1": "timeout"})),
            "danger: us-east-1 of aws is silent, and its instances are as last seen: timeout.",
            "Wrong: us-east-1 is silent. ",
        ),
        (
            ProviderState(("aws: throttled",)),
            "warning: Prices of aws are as last seen. aws: throttled.",
            "Needs a look: aws reports trouble. ",
        ),
        (
            ProviderState((), Condition(troubles=("no reclaim notices: denied",))),
            "warning: aws: no reclaim notices: denied.",
            "Needs a look: aws reports trouble. ",
        ),
    ],
)
def test_conditions_of_a_provider_are_no_failed_look(
    state: ProviderState, expected: str, first: str
) -> None:
    known = facts(providers={"aws": state})
    assert texts(known) == [expected]
    assert sentence(known).startswith(first)


def test_a_provider_that_does_not_answer_is_named_with_its_error() -> None:
    state = ProviderState(("file: timed out",), is_silent=True)
    (text,) = texts(facts(providers={"file": state}))
    assert text == (
        "danger: file is silent: its 3 instances ($1.50/h) can't be seen or changed now. "
        "file: timed out."
    )


def test_refused_offers_and_limits_are_good_to_know() -> None:
    limits = (Limit("quota", LimitUnit.DEVICES, 96),)
    known = facts(
        unavailable=frozenset({"small"}), limits=limits, shadow_prices={"quota": 14.2 / 3600}
    )
    refused, full = texts(known)
    assert refused == "note: 1 offer refused by the clouds now: small."
    assert full.startswith("note: 1 limit holds jobs back: quota.")
    assert sentence(known).startswith("Nothing is wrong. ")


def test_the_first_page_has_failures_of_the_last_day_and_missed_deadlines(api: Api) -> None:
    world, now_seconds = api.world, api.world.clock.now()
    deadline = Objective(deadline_seconds=now_seconds + 60.0)
    for name, objective in (("birds", deadline), ("words", Objective()), ("old", Objective())):
        world.store.jobs.add(replace(SPEC, name=name, objective=objective), now_seconds)
    world.store.jobs.set_phase("old", JobPhase.FAILED, now_seconds, "exit 1")
    visitor = PageVisitor(api)
    assert "Needs a look: old failed . Nothing runs" in visitor.text("/")
    world.clock.advance(DAY + 60.0)
    world.store.jobs.set_phase("words", JobPhase.FAILED, now_seconds + DAY, "exit 2")
    visitor = PageVisitor(api)  # the session before has ended
    text = visitor.text("/")
    assert "birds misses its deadline . Needs a look: words failed ." in text, text
    assert "birds has missed its deadline by 1d" in text
    assert "words failed: exit 2." in text and "old failed" not in text
    assert 'href="/jobs/words.1"' in visitor.get("/").text


@pytest.mark.parametrize("phase", [JobPhase.FAILED, JobPhase.STOPPED])
def test_a_job_that_runs_again_needs_no_look_any_more(api: Api, phase: JobPhase) -> None:
    world, now_seconds = api.world, api.world.clock.now()
    jobs, visitor = world.store.jobs, PageVisitor(api)

    def ends(name: str, person: str | None = None) -> str:
        job = jobs.add(replace(SPEC, name=name, person=person), now_seconds).id
        reason = StopReason.JOB_BUDGET if phase is JobPhase.STOPPED else None
        jobs.set_phase(job, phase, now_seconds, stop_reason=reason)
        world.clock.advance(30.0)
        return job

    words = "used up its budget" if phase is JobPhase.STOPPED else "failed"
    first = ends("birds")
    assert f"Needs a look: {first} {words} ." in visitor.text("/")
    second = ends("birds")
    assert f"Needs a look: {second} {words} ." in visitor.text("/"), "it alone counts"
    jobs.add(replace(SPEC, name="birds", person="ada"), now_seconds)
    world.clock.advance(30.0)
    assert f"{second} {words}" in visitor.text("/"), "the other one is another person's"
    jobs.set_phase("birds.3", JobPhase.FINISHED, now_seconds)
    jobs.add(replace(SPEC, name="birds", resumes=first), now_seconds)
    world.clock.advance(30.0)
    assert "Nothing is wrong." in visitor.text("/")


def test_all_late_ends_of_the_last_day_are_found_and_each_is_read_once() -> None:
    jobs = memory_store().jobs
    reads: list[int] = []

    def ends(number: int, late_seconds: float, at_seconds: float) -> None:
        objective = Objective(deadline_seconds=at_seconds - late_seconds)
        job = jobs.add(replace(SPEC, name=f"job-{number}", objective=objective), 0.0).id
        jobs.set_phase(job, JobPhase.FINISHED, at_seconds)

    class Counted:
        @property
        def jobs(self) -> Counted:
            return self

        def page(self, *asked: Any) -> tuple[JobRecord, ...]:
            page = jobs.page(*asked)
            reads.append(len(page))
            return page

    ends(0, 5.0, NOW)
    for number in range(1, 1202):
        ends(number, -5.0, NOW)
    late = LateEnds(Counted())  # type: ignore[arg-type]
    assert [job.id for job in late.of(NOW)] == ["job-0"]
    assert reads == [1000, 202]
    late.of(NOW + 2000.0)
    reads.clear()
    ends(2000, 60.0, NOW + 3000.0)
    assert [job.id for job in late.of(NOW + 4000.0)] == ["job-2000", "job-0"]
    assert reads == [1], "the others were read before"
    assert [job.id for job in late.of(NOW + DAY + 1.0)] == ["job-2000"]


def test_a_freeze_is_named_at_once_and_leads_to_its_end(api: Api) -> None:
    visitor = PageVisitor(api)
    visitor.send("/fleet/freeze")
    assert "Needs a look: the fleet is frozen ." in visitor.text("/")
    assert 'href="#fleet-actions"' in visitor.get("/").text
    assert 'id="fleet-actions"' in visitor.get("/").text
