"""Forms of a study: its budget and its stop, with the audit rows of the API's routes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.domain.trial import StopRequest, StudyStop
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyLease, StudyStatement
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor, version, visible
from tests.service.studies.test_courses import searched
from tests.service.studies.test_studies import driver

FORMS = ("/studies/sweep/budget", "/studies/sweep/stop")


def latest(api: Api) -> tuple[str, str, str, str]:
    row = api.client.audit()[0]
    return row.action, row.subject, row.before, row.after


def budget(api: Api) -> Decimal | None:
    terms = api.world.store.studies.terms("sweep")
    assert terms is not None
    return terms.objective.budget_usd


def links(visitor: PageVisitor) -> list[bool]:
    page = visitor.get("/studies/sweep").text
    return [f'href="{path}"' in page for path in FORMS]


def test_the_budget_of_a_study_is_set(api: Api) -> None:
    searched(api)
    visitor = PageVisitor(api)
    assert links(visitor) == [True, True]
    assert "Budget of sweep" in visitor.text(FORMS[0])
    reply = visitor.send(FORMS[0], budget="$60")
    assert reply.headers["location"] == "/studies/sweep?done=budget-set"
    assert budget(api) == Decimal(60)
    assert latest(api) == ("change study", "sweep", "no budget", "$60")
    assert "The study has this budget" in visitor.text(reply.headers["location"])
    assert 'value="60"' in visitor.get(FORMS[0]).text


@pytest.mark.parametrize("text", ["-5", "lots", "", "0", "NaN", "1e400", "9" * 30])
def test_a_budget_that_is_no_amount_stays_in_the_form(api: Api, text: str) -> None:
    driver(api).state(StudyStatement("ada", StudyTerms(), ()))
    visitor = PageVisitor(api)
    before, row = budget(api), latest(api)
    reply = visitor.send(FORMS[0], budget=text)
    assert reply.status_code == 422 and 'id="budget-error"' in reply.text
    assert f'value="{text}"' in reply.text and "budget: " in visible(reply.text)
    assert (budget(api), latest(api)) == (before, row)


def test_a_budget_that_changed_meanwhile_is_shown_and_not_overwritten(api: Api) -> None:
    searched(api)
    visitor = PageVisitor(api)
    read = version(visitor.get(FORMS[0]).text)
    driver(api).set_budget(Decimal(70))
    reply = visitor.send(FORMS[0], budget="60", version=read)
    assert reply.status_code == 412 and "has changed since" in visible(reply.text)
    assert "In force: $70.00" in visible(reply.text) and 'value="60"' in reply.text
    assert budget(api) == Decimal(70)
    assert visitor.send(FORMS[0], budget="60", version=version(reply.text)).status_code == 303
    assert budget(api) == Decimal(60)


@pytest.mark.parametrize(
    ("fields", "stop", "after"),
    [
        ({}, StudyStop.WITH_ITS_TRIALS, "after its trials"),
        ({"trials": "go on"}, StudyStop.WITH_ITS_TRIALS, "after its trials"),
        ({"trials": "stop"}, StudyStop.AT_ONCE, "at once"),
    ],
)
def test_a_study_is_stopped_after_a_question(
    api: Api, fields: dict[str, str], stop: StudyStop, after: str
) -> None:
    study = driver(api)
    visitor = PageVisitor(api)
    assert "Stop sweep? No further trial begins; 0 trials run now" in visitor.text(FORMS[1])
    lease = StudyLease("ada", 30.0)
    assert study.lease(lease) is StudyStop.NOT, "a question changes nothing"
    reply = visitor.send(FORMS[1], **fields)
    assert reply.headers["location"] == "/studies/sweep?done=study-stopping"
    assert study.lease(lease) is stop
    assert latest(api) == ("stop study", "sweep", "", after)


def test_a_stop_is_shown_with_its_person_and_time_until_the_driver_has_left(api: Api) -> None:
    study = driver(api)
    study.state(StudyStatement("ada", StudyTerms(), ()))
    bob = api.client.invite("bob", InvitationRequest(Role.OPERATOR)).token
    visitor = PageVisitor(api, bob)
    assert study.view().stop is None and "Stopping" not in visitor.text("/studies/sweep")
    visitor.send(FORMS[1])
    now_seconds = api.world.clock.now()
    request = StopRequest(StudyStop.WITH_ITS_TRIALS, now_seconds, "bob")
    assert study.view().stop == request
    assert api.client.studies()[0].stop == request
    api.world.clock.advance(20.0)
    text = visitor.text("/studies/sweep")
    assert "Stopping: bob requested it 20 s ago . No further trial begins" in text, text
    assert links(visitor) == [True, True] and "Stop running trials, too" in text
    assert "stopping" in visitor.text("/studies")
    page = visitor.text(FORMS[1])
    assert "Stop the running trials of sweep?" in page and "Stopping: bob" in page
    assert 'type="radio"' not in visitor.get(FORMS[1]).text
    assert study.lease(StudyLease("ada", 30.0)) is StudyStop.WITH_ITS_TRIALS
    PageVisitor(api).send(FORMS[1], trials="stop")
    view = study.view()
    assert view.stop is not None and view.stop.person == "owner"
    assert view.stop.stop is StudyStop.AT_ONCE
    text = visitor.text("/studies/sweep")
    assert "owner requested it" in text and "end at once" in text
    assert links(visitor) == [True, False], "nothing more can be stopped"
    assert "sweep is stopping" in visitor.text(FORMS[1])
    assert '<button class="danger"' not in visitor.get(FORMS[1]).text
    study.leave("ada")
    assert study.view().stop is None and "Stopping" not in visitor.text("/studies/sweep")


def test_a_choice_that_does_not_exist_stops_nothing(api: Api) -> None:
    study = driver(api)
    reply = PageVisitor(api).send(FORMS[1], trials="burn")
    assert reply.status_code == 422 and "trials: " in visible(reply.text)
    assert study.lease(StudyLease("ada", 30.0)) is StudyStop.NOT


def test_a_study_that_has_ended_has_nothing_to_stop(api: Api) -> None:
    study = driver(api)
    study.state(StudyStatement("ada", StudyTerms(), ()))
    study.leave("ada")
    visitor = PageVisitor(api)
    assert links(visitor) == [True, False], "its next run may need another budget"
    assert "there is nothing to stop" in visitor.text(FORMS[1])
    reply = visitor.send(FORMS[1])
    assert reply.status_code == 409 and "has no driver" in visible(reply.text)
    assert latest(api)[0] != "stop study"
    assert visitor.send(FORMS[0], budget="70").status_code == 303
    assert budget(api) == Decimal(70)


def test_an_unknown_study_has_no_forms(api: Api) -> None:
    visitor = PageVisitor(api)
    for path in ("/studies/none/budget", "/studies/none/stop"):
        assert visitor.get(path).status_code == 404, path
    assert visitor.send("/studies/none/budget", budget="5").status_code == 404
    assert visitor.send("/studies/none/stop").status_code in (404, 409)


def test_forms_of_another_persons_study_are_neither_shown_nor_taken(api: Api) -> None:
    ada = api.client.invite("ada", InvitationRequest(Role.SUBMITTER, "nlp")).token
    objective = Objective(budget_usd=Decimal(9))
    study = StudyClient(api.url, ada, "sweep")
    study.lease(StudyLease("laptop", 30.0))
    study.state(StudyStatement("laptop", StudyTerms(objective=objective), ()))
    for name, team, may in (("bob", "nlp", True), ("eve", None, False)):
        token = api.client.invite(name, InvitationRequest(Role.SUBMITTER, team)).token
        visitor = PageVisitor(api, token)
        assert links(visitor) == [may, may], name
        for path in FORMS:
            assert (visitor.get(path).status_code == 200) == may, (name, path)
        sent = visitor.send(FORMS[0], budget="50").status_code
        assert sent == (303 if may else 403), name
    assert visitor.send(FORMS[1]).status_code == 403
    assert study.lease(StudyLease("laptop", 30.0)) is StudyStop.NOT
    assert budget(api) == Decimal(50)


def test_a_form_of_another_site_changes_nothing(api: Api) -> None:
    driver(api).state(StudyStatement("ada", StudyTerms(), ()))
    visitor, before = PageVisitor(api), budget(api)
    for path, fields in ((FORMS[0], {"budget": "5"}), (FORMS[1], {})):
        reply = visitor.http.post(path, data={"form_token": "f" * 64, **fields})
        assert reply.status_code == 401, path
    assert budget(api) == before
