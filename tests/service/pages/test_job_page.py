"""Page of a job as a browser without scripts gets it."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.report import Failure, FailureCategory
from autoscaler.service.pages import job
from autoscaler.service.pages.formats import absolute, significant
from autoscaler.wire.access_messages import InvitationRequest
from tests.service.agents import SPEC
from tests.service.conftest import Api
from tests.service.jobs.test_histories import trained
from tests.service.jobs.test_outlooks import trains
from tests.service.jobs.test_resume import give_back
from tests.service.pages.browser import PageVisitor


def test_the_page_of_a_running_job_answers_without_scripts(api: Api) -> None:
    trains(api)
    visitor = PageVisitor(api)
    page, text = visitor.get("/jobs/job").text, visitor.text("/jobs/job")
    for words in (
        *("What more instances would buy", "Money", "Time", "What if?", "Course", "Decisions"),
        *("held now: 1 x small", "best other:", "9 of 10 cases", "same price of progress"),
        *("useful examples/s", "instances of one offer", "not measured", "A million examples"),
        *("Spent", "python train.py", "job-0-1"),
    ):
        assert words in text, words
    assert 'class="held"' in page and 'class="candidate"' in page and 'class="equal"' in page
    assert re.search(r"In all about \$[\d.]+", text), text
    assert len(page) < 300_000


def test_the_table_of_sizes_is_cut_and_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    trains(api)
    assert "castor curve" not in PageVisitor(api).text("/jobs/job")
    monkeypatch.setattr(job, "_SIZES", 2)
    assert re.search(r"and \d+ more: castor curve job --json", PageVisitor(api).text("/jobs/job"))


def test_a_decision_has_an_anchor_that_its_tick_leads_to(api: Api) -> None:
    trained(api)
    page = PageVisitor(api).get("/jobs/job").text
    ticks = set(re.findall(r'class="decision-tick" href="#(decision-\d+)"', page))
    assert ticks
    assert ticks <= set(re.findall(r'<li id="(decision-\d+)"', page))
    assert "Loss, as the script reports it" in page and "Learning rate" in page


def test_a_job_that_has_not_begun_says_what_is_missing(api: Api) -> None:
    api.client.submit(SPEC)
    text = PageVisitor(api).text("/jobs/job")
    assert "There is no curve yet: no throughput model is fitted yet" in text
    assert "not predicted: no throughput model is fitted yet" in text
    assert "What if?" not in text and "Nothing is decided yet" in text


def test_a_job_that_has_lost_its_instance_is_shown_as_waiting(api: Api) -> None:
    trains(api)
    for held in api.world.store.instances.of_job("job"):
        give_back(api, held)
    assert (api.client.job("job").phase, api.client.job("job").eta_seconds) == ("running", None)
    visitor = PageVisitor(api)
    page, first = visitor.text("/jobs/job"), visitor.text("/")
    assert "job waiting" in page and "Waits for instances: its last report came" in page
    assert re.search(r"Goodput \S examples/s", page)
    assert "1 waits." in first
    assert re.search(r"job waiting none \S", first)
    assert "waiting" in visitor.text("/jobs")


def test_deadline_and_budget_stand_beside_the_predicted_bands(api: Api) -> None:
    trains(api)
    objective = Objective(
        deadline_seconds=api.world.clock.now() + 3600.0, budget_usd=Decimal("0.50")
    )
    api.world.store.jobs.change_spec("job", objective=objective)
    text = PageVisitor(api).text("/jobs/job")
    assert "Budget $0.50" in text and "Deadline in 1 h kept in 100 % of cases" in text
    assert text.count("kept in 100 % of cases") == 1, text


def test_a_budget_alone_says_how_surely_it_is_kept(api: Api) -> None:
    trains(api)
    api.world.store.jobs.change_spec("job", objective=Objective(budget_usd=Decimal("20")))
    assert re.search(r"Budget \$20\.00 kept in \d+ % of cases", PageVisitor(api).text("/jobs/job"))


def test_a_deadline_that_is_kept_too_rarely_names_what_was_asked(api: Api) -> None:
    trains(api)
    soon = Objective(deadline_seconds=api.world.clock.now() + 10.0)
    api.world.store.jobs.change_spec("job", objective=soon)
    outlook = api.client.outlook("job")
    text = PageVisitor(api).text("/jobs/job")
    assert outlook.chance is not None and outlook.chance < 0.9 == outlook.confidence
    assert f"kept in {100 * outlook.chance:.0f} % of cases, 90 % asked" in text
    assert "deadline out of reach" in text


def test_the_header_and_the_curve_have_one_figure_of_the_model(api: Api) -> None:
    trains(api)
    held = api.client.curve("job").held
    assert held is not None
    figure = significant(held.goodput)
    text = PageVisitor(api).text("/jobs/job")
    report = api.client.job("job").report
    assert report is not None and report.goodput_measured is not None
    assert (
        f"Goodput {significant(report.goodput_measured)} examples/s measured at batch "
        f"{report.batch.total:,}; {figure} by the model at its best batch"
    ) in text


@pytest.mark.parametrize(
    ("due_seconds", "words"),
    [(7200.0, "kept with 1 h 59 min to spare"), (20.0, "missed by 40 s")],
)
def test_an_ended_job_shows_last_values_and_no_present_ones(
    api: Api, due_seconds: float, words: str
) -> None:
    trains(api)
    deadline = api.world.clock.now() + due_seconds
    api.world.store.jobs.change_spec("job", objective=Objective(deadline_seconds=deadline))
    api.world.clock.advance(60.0)
    api.world.store.jobs.set_phase("job", JobPhase.FINISHED, api.world.clock.now())
    text = PageVisitor(api).text("/jobs/job")
    assert "deadline in" not in text and "Deadline in" not in text
    assert absolute(deadline) in text and words in text
    assert "Price now" not in text and "by the model at" not in text
    assert "Last goodput" in text and "Cost in all" in text and "From start to end" in text
    assert "What more instances would have bought" in text


def test_the_what_if_is_a_form_whose_address_shows_another_person_the_same(api: Api) -> None:
    trains(api)
    visitor = PageVisitor(api)
    text = visitor.text("/jobs/job?value=40")
    assert "If an hour were worth $40" in text and "With its own objective" in text
    part = visitor.get("/jobs/job/what-if?hours=0.5").text
    assert "If it had to end within 0.5 h" in part and "<html" not in part
    assert api.client.job("job").objective == SPEC.objective


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("assume=hours&value=40&hours=0.5", "If it had to end within 0.5 h"),
        ("assume=value&value=40&hours=0.5", "If an hour were worth $40"),
        ("value=40&hours=0.5", "If an hour were worth $40"),
        ("assume=value&hours=0.5", "With its own objective"),
        ("assume=else&hours=0.5", "If it had to end within 0.5 h"),
        ("value=0", "If an hour were worth $0"),
    ],
)
def test_the_chosen_one_of_two_terms_is_in_force(api: Api, query: str, words: str) -> None:
    trains(api)
    visitor = PageVisitor(api)
    text = visitor.text(f"/jobs/job?{query}")
    assert words in text and ("If " in text) is words.startswith("If "), text
    chosen = re.findall(
        r'name="assume" value="(\w+)" checked', visitor.get(f"/jobs/job?{query}").text
    )
    assert chosen == ["hours" if "0.5 h" in words else "value"]


def test_the_choice_of_a_job_without_a_what_if_is_that_of_its_objective(api: Api) -> None:
    trains(api)
    visitor = PageVisitor(api)
    assert 'value="value" checked' in visitor.get("/jobs/job").text
    deadline = Objective(deadline_seconds=api.world.clock.now() + 7200.0)
    api.world.store.jobs.change_spec("job", objective=deadline)
    assert 'value="hours" checked' in visitor.get("/jobs/job").text
    assert re.search(r'id="hours"[^>]* value="2\.0"', visitor.get("/jobs/job").text)


@pytest.mark.parametrize(
    ("objective", "shown"),
    [
        (Objective(Preference.CHEAPEST), "nothing"),
        (Objective(Preference.VALUE_OF_TIME, 0.045), "about $0.045"),
        (Objective(Preference.VALUE_OF_TIME, 40.0), "about $40"),
    ],
)
def test_the_slider_stands_at_what_an_hour_counts(
    api: Api, objective: Objective, shown: str
) -> None:
    trains(api)
    api.world.store.jobs.change_spec("job", objective=objective)
    visitor = PageVisitor(api)
    assert f"An hour counts {shown}" in visitor.text("/jobs/job")
    value = re.search(r'id="value"[^>]* value="([^"]*)"', visitor.get("/jobs/job").text)
    assert value is not None and value[1] == (shown.split("$")[-1] if "$" in shown else "0")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("value=much", "value of time: is no number"),
        ("value=-4", "objective.value_of_time"),
        ("value=nan", "objective.value_of_time"),
        ("hours=-1", "has passed"),
        ("hours=1e300", "objective.deadline"),
        ("hours=%3Cscript%3E", "is no number"),
    ],
)
def test_a_bad_what_if_is_told_on_the_page(api: Api, query: str, words: str) -> None:
    trains(api)
    reply = PageVisitor(api).get(f"/jobs/job?{query}")
    assert reply.status_code == 200 and words in reply.text and "<script>" not in reply.text


def test_failures_stand_with_their_category(api: Api) -> None:
    trains(api)
    failure = Failure(
        "job-0-1", 1, 137, "<b>killed</b>", "x", 3, category=FailureCategory.HOST_MEMORY
    )
    api.world.store.reports.add_failure("job", failure, api.world.clock.now())
    page = PageVisitor(api).get("/jobs/job").text
    assert "host memory" in page and "&lt;b&gt;killed" in page and "exit code 137" in page


def test_the_log_is_shown_to_those_who_may_read_it(api: Api) -> None:
    trains(api)
    held = api.world.store.instances.of_job("job")[0]
    log = b"".join(b"[rank 1] line %d <i>\n" % number for number in range(500))
    logs = api.directory / "logs" / "job"
    logs.mkdir(parents=True)
    (logs / f"{held.id}.log").write_bytes(log)
    owner = PageVisitor(api)
    assert "line 499 &lt;i&gt;" in owner.get("/jobs/job").text
    assert f"{held.id} rank 1 line 499 <i>" in owner.text("/jobs/job")
    whole = owner.get("/jobs/job/log").text
    assert "line 499" in whole and "line 100 " in whole and "line 99 " not in whole
    assert "line 499" not in owner.get("/jobs/job/log?instance=other").text
    token = api.client.invite("eve", InvitationRequest(Role.VIEWER)).token
    viewer = PageVisitor(api, token)
    page = viewer.get("/jobs/job")
    assert page.status_code == 200 and "line 499" not in page.text
    assert "Only its owner" in page.text and "/jobs/job/stop" not in page.text
    assert viewer.get("/jobs/job/log").status_code == 403


def test_an_ended_job_offers_what_can_follow(api: Api) -> None:
    trained(api)
    api.client.stop("job")
    api.world.tick(5)
    page = PageVisitor(api).get("/jobs/job").text
    assert 'action="/jobs/job.1/resume"' in page and "/jobs/job.1/again" in page
    assert "/jobs/job/change" not in page and "Ended" in page


def test_links_to_an_ended_job_lead_to_no_later_one_of_its_name(api: Api) -> None:
    trained(api)
    api.client.stop("job")
    api.world.tick(5)
    api.client.submit(replace(SPEC, name="job"))
    owner = PageVisitor(api)
    rows = owner.get("/jobs").text
    assert 'href="/jobs/job.1"' in rows and 'href="/jobs/job.2"' in rows
    assert "/jobs/job.1/again" in owner.get("/jobs/job.1").text
    assert "/jobs/job.2/stop" in owner.get("/jobs/job").text


def test_an_unknown_job_has_no_page(api: Api) -> None:
    reply = PageVisitor(api).get("/jobs/nobody")
    assert reply.status_code == 404 and "castor status" in reply.text


def test_a_page_needs_a_session(api: Api) -> None:
    api.client.submit(replace(SPEC, name="job"))
    for path in ("/jobs/job", "/jobs/job/what-if", "/jobs/job/log"):
        reply = PageVisitor(api, None).get(path)
        assert reply.status_code == 303 and reply.headers["location"].startswith("/sign-in")
