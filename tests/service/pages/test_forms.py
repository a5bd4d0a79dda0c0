"""Forms of pages: the same changes as by the API, with the same rows of the audit log."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import httpx
import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.errors import NotAllowed
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.messages import Change
from tests.service.agents import SPEC
from tests.service.conftest import Api
from tests.service.jobs.test_outlooks import trains
from tests.service.jobs.test_resume import run
from tests.service.pages.browser import PageVisitor, version, visible

JOB_FILE = """name: digits
command: python train.py
instances: {min: 1, max: 3}
objective: {deadline: 4h}
"""


def latest(api: Api) -> tuple[str, str, str]:
    row = api.client.audit()[0]
    return row.person, row.action, row.subject


def upload(
    visitor: PageVisitor, job: str, *files: tuple[str, bytes], token: str | None = None
) -> httpx.Response:
    """Send the form of a job file and a folder."""
    form_token = visitor.form_token() if token is None else token
    parts: list[tuple[str, tuple[str | None, bytes]]] = [
        ("form_token", (None, form_token.encode()))
    ]
    parts += [("files", (name, content)) for name, content in files or [("", b"")]]
    parts.append(("job", (None, job.encode())))
    return visitor.http.post("/submit/upload", files=parts)


def test_a_job_is_submitted_with_its_folder(api: Api) -> None:
    visitor = PageVisitor(api)
    script = ("digits/train.py", b"print(1)\n")
    reply = upload(visitor, JOB_FILE, script, ("digits/data/a.txt", b"a"))
    assert (reply.status_code, reply.headers["location"]) == (303, "/jobs/digits?done=submitted")
    spec = api.world.store.jobs.get("digits").spec
    assert spec.command == ("python", "train.py") and spec.instances.maximum == 3
    assert spec.bundle is not None and spec.person == "owner"
    deadline_seconds = spec.objective.deadline_seconds
    assert deadline_seconds == pytest.approx(api.world.clock.now() + 4 * 3600)
    assert [row.action for row in api.client.audit()][:2] == ["submit", "add bundle"]
    assert not list((api.directory / "bundles").glob(".upload-*"))


def test_the_job_file_of_the_folder_counts_if_none_is_written(api: Api) -> None:
    files = (("d/job.yaml", JOB_FILE.encode()), ("d/train.py", b""))
    assert upload(PageVisitor(api), "", *files).status_code == 303
    assert api.world.store.jobs.get("digits").spec.bundle is not None


def test_a_job_without_a_folder_has_no_bundle(api: Api) -> None:
    assert upload(PageVisitor(api), JOB_FILE).status_code == 303
    assert api.world.store.jobs.get("digits").spec.bundle is None


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ("", "job"),
        ("name: x\ncommand: [", "line"),
        ("name: x\ncommand: y\ninstances: {max: 0}\n", "instances.max"),
        (JOB_FILE + "working_directory: /etc\n", "working_directory"),
        (JOB_FILE + "working_directory: ../..\n", "working_directory"),
        (JOB_FILE + 'working_directory: "~"\n', "working_directory"),
        (JOB_FILE + "ref: main\n", "has no repository"),
    ],
)
def test_a_wrong_job_file_stays_in_the_form_with_its_error(api: Api, job: str, text: str) -> None:
    reply = upload(PageVisitor(api), job, ("d/train.py", b""))
    assert reply.status_code == 422 and text in visible(reply.text)
    assert 'role="alert"' in reply.text and not api.client.jobs()
    assert all(line in visible(reply.text) for line in job.splitlines()[1:2])


@pytest.mark.parametrize(
    "name",
    [
        "../../x/train.py",
        "/etc/passwd",
        "a/../../b",
        "a\x00b/c",
        "a/" + ("😀" * 60 + "/") * 16 + "b",
    ],
)
def test_an_uploaded_file_stays_in_its_folder(api: Api, name: str) -> None:
    boundary = "xyz"
    token = (visitor := PageVisitor(api)).form_token()
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="form_token"\r\n\r\n{token}\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
        f"x\r\n--{boundary}--\r\n"
    )
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    reply = visitor.http.post("/submit/upload", content=body.encode(), headers=headers)
    assert reply.status_code == 422 and "no path of a file" in reply.text


def test_an_upload_of_another_site_writes_nothing(api: Api) -> None:
    visitor = PageVisitor(api)
    assert upload(visitor, JOB_FILE, token="wrong").status_code == 401
    reply = visitor.http.post("/submit/upload", files={"files": ("d/a", b"x")})
    assert reply.status_code == 401 and "does not begin with its token" in reply.text
    assert not api.client.jobs()


def test_an_upload_that_is_too_large_is_refused(api: Api) -> None:
    reply = upload(PageVisitor(api), JOB_FILE, ("d/train.py", b"x" * 2_000))
    assert reply.status_code == 422 and "larger than the 1,000 bytes" in reply.text


def test_a_job_is_changed(api: Api) -> None:
    api.client.submit(SPEC)
    visitor = PageVisitor(api)
    assert 'value="2"' in visitor.get("/jobs/job/change").text
    fields = {"objective": "value_of_time", "value_of_time": "40", "maximum": "3", "minimum": "1"}
    reply = visitor.send("/jobs/job/change", **fields, priority="4")
    assert reply.headers["location"] == "/jobs/job?done=changed"
    spec = api.world.store.jobs.get("job").spec
    assert spec.objective.preference is Preference.VALUE_OF_TIME
    assert spec.objective.value_of_time_usd_per_hour == 40.0
    assert (spec.instances.maximum, spec.priority) == (3, 4.0)
    assert latest(api) == ("owner", "change job", "job")
    assert api.client.audit()[0].after.startswith('{"objective":')


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"objective": "terms"}, "write a deadline, a budget, or both"),
        ({"objective": "terms", "deadline": "soon"}, "soon"),
        ({"objective": "value_of_time", "value_of_time": "x"}, "value_of_time"),
        ({"objective": "lazy"}, "lazy"),
        ({"objective": "balanced", "maximum": "-1"}, "-1"),
        ({"objective": "balanced", "maximum": "9" * 30}, "999"),
        ({"objective": "balanced", "minimum": "3", "maximum": "2"}, "instances"),
        ({"objective": "balanced", "priority": "x"}, "priority"),
        ({"objective": "balanced", "deadline": "4h"}, '"Deadline, budget, or both" only'),
        ({"objective": "fastest", "budget": "20"}, "objective.budget"),
        ({"objective": "terms", "budget": "20", "value_of_time": "40"}, "of waiting is worth"),
    ],
)
def test_a_wrong_change_stays_in_the_form_with_its_error(
    api: Api, fields: dict[str, str], text: str
) -> None:
    api.client.submit(SPEC)
    before = api.world.store.jobs.get("job")
    reply = PageVisitor(api).send("/jobs/job/change", **fields)
    assert reply.status_code == 422 and text in visible(reply.text)
    for name, value in fields.items():
        if name == "objective":
            continue
        assert f'value="{value}"' in reply.text
    assert api.world.store.jobs.get("job") == before


def test_an_objective_that_stays_equal_is_not_set_again(api: Api) -> None:
    deadline_seconds = api.world.clock.now() + 10_000.4
    api.client.submit(replace(SPEC, objective=Objective(deadline_seconds=deadline_seconds)))
    visitor = PageVisitor(api)
    fields = {"objective": "terms", "deadline": "2h46m", "budget": "", "maximum": "2"}
    assert visitor.send("/jobs/job/change", **fields, minimum="1").status_code == 303
    assert api.world.store.jobs.get("job").spec.objective.deadline_seconds == deadline_seconds


def test_a_form_that_was_open_for_long_moves_no_deadline_and_keeps_its_rules(api: Api) -> None:
    objective = Objective(
        deadline_seconds=api.world.clock.now() + 10_000.4,
        confidence=0.7,
        after_deadline=AfterDeadline.STOP,
    )
    api.client.submit(replace(SPEC, objective=objective))
    visitor = PageVisitor(api)
    assert 'name="shown_deadline" value="2h46m"' in visitor.get("/jobs/job/change").text
    api.world.clock.advance(600)
    fields = {"objective": "terms", "deadline": "2h46m", "shown_deadline": "2h46m"}
    reply = visitor.send("/jobs/job/change", **fields)
    assert reply.headers["location"] == "/jobs/job?done=unchanged"
    assert "Nothing is changed" in visitor.text("/jobs/job?done=unchanged")
    assert visitor.send("/jobs/job/change", **fields, budget="20").status_code == 303
    with_budget = replace(objective, budget_usd=Decimal(20))
    assert api.world.store.jobs.get("job").spec.objective == with_budget
    other = fields | {"objective": "cheapest"}
    assert visitor.send("/jobs/job/change", **other).status_code == 303
    assert api.world.store.jobs.get("job").spec.objective.deadline_seconds is None


def test_a_budget_below_what_is_spent_is_refused(api: Api) -> None:
    trains(api)
    spent_usd = api.client.job("job").spent_usd
    assert spent_usd > Decimal("0.0005")
    reply = PageVisitor(api).send("/jobs/job/change", objective="terms", budget="0.0005")
    assert reply.status_code == 422 and "that job has spent" in visible(reply.text)
    assert api.client.job("job").objective.budget_usd is None


def test_a_job_is_stopped_resumed_and_submitted_again(api: Api) -> None:
    run(api, SPEC)
    job = "job"
    visitor = PageVisitor(api)
    reply = visitor.send(f"/jobs/{job}/resume")
    assert reply.status_code == 303, visible(reply.text)
    assert latest(api)[1] == "resume job"
    again = visitor.send(
        "/jobs/job.1/again",
        name="fresh",
        command="python 'my train.py'",
        objective="terms",
        budget="20",
        maximum="1",
    )
    assert again.status_code == 303, visible(again.text)
    assert again.headers["location"] == "/jobs/fresh?done=submitted"
    spec = api.world.store.jobs.get("fresh").spec
    assert spec.command == ("python", "my train.py") and spec.resumes is None
    assert spec.objective.budget_usd == Decimal(20)
    assert visitor.send("/jobs/fresh/stop").status_code == 303
    assert api.client.job("fresh").phase in (JobPhase.STOPPING, JobPhase.STOPPED)
    assert latest(api) == ("owner", "stop job", "fresh")


def test_an_ended_job_has_no_form_to_change_it(api: Api) -> None:
    run(api, SPEC)
    reply = PageVisitor(api).get("/jobs/job/change")
    assert reply.status_code == 409
    assert "castor resume job KEY=VALUE continues it" in visible(reply.text)


def test_a_running_job_is_not_submitted_again(api: Api) -> None:
    api.client.submit(SPEC)
    reply = PageVisitor(api).send("/jobs/job/again", objective="balanced")
    assert reply.status_code == 409 and "has not ended" in visible(reply.text)


def test_the_fleet_is_frozen_released_and_drained(api: Api) -> None:
    api.client.submit(SPEC)
    visitor = PageVisitor(api)
    assert visitor.send("/fleet/freeze").headers["location"] == "/?done=frozen"
    api.world.tick(1)
    assert "frozen by owner" in visitor.text("/?done=frozen")
    assert latest(api) == ("owner", "freeze", "fleet")
    visitor.send("/fleet/unfreeze")
    assert "1 job and all studies end" in visitor.text("/fleet/drain")
    visitor.send("/fleet/drain")
    assert latest(api) == ("owner", "drain", "fleet")
    assert not [job for job in api.client.jobs() if job.phase is JobPhase.RUNNING]


def test_a_job_that_was_changed_meanwhile_is_shown_and_not_overwritten(api: Api) -> None:
    api.client.submit(SPEC)
    visitor = PageVisitor(api)
    read = version(visitor.get("/jobs/job/change").text)
    api.client.change("job", Change(priority=7.0))
    fields = {"objective": "balanced", "minimum": "1", "maximum": "3", "priority": "1"}
    reply = visitor.send("/jobs/job/change", **fields, version=read)
    assert reply.status_code == 412 and "job has changed since" in visible(reply.text)
    assert "priority 7" in visible(reply.text) and 'value="3"' in reply.text
    spec = api.world.store.jobs.get("job").spec
    assert spec.priority == 7.0 and spec.instances.maximum != 3
    api.world.tick(3)  # another phase changes no version
    again = visitor.send("/jobs/job/change", **fields, version=version(reply.text))
    assert again.status_code == 303
    assert api.world.store.jobs.get("job").spec.instances.maximum == 3


def test_people_are_invited_changed_and_removed(api: Api) -> None:
    visitor = PageVisitor(api)
    reply = visitor.send("/people/new/invitation", name="ada", role="viewer", team="nlp")
    assert reply.status_code == 200, visible(reply.text)
    token = visible(reply.text).split("CASTOR_TOKEN : ")[1].split()[0]
    assert api.stranger(token).jobs() == ()
    assert latest(api) == ("owner", "invite", "ada")
    assert visitor.send("/people/ada/standing", role="operator", team="").status_code == 303
    ada = next(person for person in api.client.people() if person.name == "ada")
    assert (ada.role, ada.team) == (Role.OPERATOR, None)
    for fields in ({"role": "king"}, {"role": "viewer", "team": "a b"}):
        assert visitor.send("/people/ada/standing", **fields).status_code == 422
    assert visitor.send("/people/new/invitation", name="é").status_code == 422
    assert 'href="/people/ada/removal"' in visitor.get("/people").text
    assert "Remove ada? 1 token of ada ends at once" in visitor.text("/people/ada/removal")
    assert api.stranger(token).jobs() == (), "a question changes nothing"
    assert visitor.send("/people/ada/removal").status_code == 303
    assert latest(api) == ("owner", "remove person", "ada")
    assert visitor.get("/people/ada/removal").status_code == 404
    with pytest.raises(NotAllowed):
        api.stranger(token).jobs()


def test_tokens_are_made_shown_once_and_revoked(api: Api) -> None:
    visitor = PageVisitor(api)
    reply = visitor.send("/people/me/tokens", name="laptop", role="viewer")
    text = visible(reply.text)
    token = text.split("Shown once: ")[1].split()[0]
    assert api.stranger(token).jobs() == ()
    assert token not in visitor.get("/people/me").text
    assert visitor.send("/people/me/tokens", name="UP").status_code == 422
    question = "/people/me/tokens/laptop/revocation"
    assert 'href="/people/owner/tokens/laptop/revocation"' in visitor.get("/people/me").text
    assert "What uses this token of owner is refused" in visitor.text(question)
    assert api.stranger(token).jobs() == (), "a question changes nothing"
    assert visitor.send(question).status_code == 303
    assert latest(api) == ("owner", "revoke token", "owner/laptop")
    assert visitor.get(question).status_code == 404
    with pytest.raises(NotAllowed):
        api.stranger(token).jobs()


def test_no_question_is_asked_about_what_is_never_removed(api: Api) -> None:
    visitor = PageVisitor(api)
    for path in ("/people/owner/removal", "/people/owner/tokens/client.json/revocation"):
        assert visitor.get(path).status_code == 409, path
        assert f'href="{path}"' not in visitor.get("/people").text, path
        assert f'href="{path}"' not in visitor.get("/people/owner").text, path
    assert visitor.get("/people/none/removal").status_code == 404
    (session,) = (
        token.name for token in api.client.tokens("owner") if token.name.startswith("browser-")
    )
    assert "you are signed out" in visitor.text(f"/people/me/tokens/{session}/revocation")


def test_pages_show_each_person_what_the_role_permits(api: Api) -> None:
    invitation = api.client.invite("vic", InvitationRequest(Role.VIEWER))
    viewer = PageVisitor(api, invitation.token)
    text = viewer.text("/")
    for word in ("Submit", "Freeze", "People", "Audit"):
        assert word not in text
    for path in ("/people", "/audit", "/submit", "/fleet/drain", "/people/owner"):
        reply = viewer.get(path)
        assert reply.status_code == 403 and "does not permit" in reply.text, path
    assert viewer.get("/people/me").status_code == 200
    assert viewer.send("/fleet/freeze").status_code == 403
