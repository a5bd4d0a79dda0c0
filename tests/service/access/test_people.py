"""Submitters of jobs, and the weights of jobs by user and priority."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.errors import (
    Conflict,
    Forbidden,
    NotAllowed,
    NotFound,
    SpecError,
    UnknownJob,
)
from autoscaler.domain.job import CheckpointSpec, InstanceBounds, JobPhase, JobRecord, JobSpec
from autoscaler.domain.report import CheckpointStatus, Failure
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, TrialEnd, TrialEnding
from autoscaler.service.access.gate import AccessGate
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import Change, Resumption
from autoscaler.wire.study_messages import StudyAnswers, StudyLease, StudyStatement, TrialCalls
from tests.service.agents import joined, node_report, packed, training_report
from tests.service.conftest import TOKEN, Api
from tests.service.jobs.test_resume import run

SPEC = JobSpec("job", ("python", "train.py"), instances=InstanceBounds(maximum=2))


def test_a_job_is_whose_token_submitted_it(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada").token)
    with pytest.raises(SpecError, match="person: is set from the token"):
        ada.submit(replace(SPEC, person="bob"))
    view = ada.submit(SPEC)
    assert (view.person, view.priority, view.weight) == ("ada", 1.0, 1.0)


def test_a_new_invitation_replaces_the_one_before(api: Api) -> None:
    lost = api.client.invite("ada").token
    assert api.stranger(lost).jobs() == ()
    found = api.client.invite("ada").token
    assert api.stranger(found).jobs() == ()
    with pytest.raises(NotAllowed, match=r"invitation of ada was revoked or replaced.*castor inv"):
        api.stranger(lost).jobs()


def test_only_an_admin_invites_and_nobody_in_a_reserved_name(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada").token)
    with pytest.raises(Forbidden, match="invite: needs the role admin, and ada is a submitter"):
        ada.invite("bob")
    for name in ("owner", "me", "controller", "Two Words"):
        with pytest.raises(SpecError, match="take another name"):
            api.client.invite(name)


def test_a_priority_is_changed_as_the_job_runs(api: Api) -> None:
    api.client.submit(SPEC)
    assert api.client.change("job", Change(priority=4.0)).priority == 4.0
    api.world.tick()
    assert api.client.job("job").weight == 4.0
    assert api.client.job("job").events[0].text == "priority by owner"
    with pytest.raises(SpecError, match=r"priority: must be a number from 0\.01 to 100"):
        api.client.change("job", Change(priority=0.0))


def test_bounds_of_an_offer_that_nobody_has_are_refused(api: Api) -> None:
    bounded = replace(SPEC, instances=InstanceBounds(maximum=2, maxima=(("smal", 1),)))
    with pytest.raises(SpecError, match=r'instances\.max_of: .*did you mean "small"'):
        api.client.submit(bounded)


def test_whose_token_is_known_or_signed_is_let_in_without_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take no thread for a known token; ask the store for another token."""
    authentication = api.authentication
    api.client.jobs()
    api.world.set_target(api.client.submit(SPEC).id, 1)
    api.world.tick(2, agents=False)
    (held,) = api.world.store.instances.alive()
    authentication.issue(held)
    node = authentication.join(authentication.join_token(held), held.id)
    monkeypatch.setattr(authentication, "_store", None)
    assert authentication.is_recognised("/v1/fleet", TOKEN)
    assert authentication.is_recognised("/v1/node/heartbeat", node)
    for path, token in (("/v1/fleet", node), ("/v1/node/heartbeat", TOKEN), ("/v1/fleet", None)):
        assert not authentication.is_recognised(path, token)


def test_a_person_of_another_team_touches_no_study_or_job(api: Api, tmp_path: Path) -> None:
    """Refuse each step by which one person took over the study of another."""
    ada, bob = member(api, "ada", "nlp"), member(api, "bob", "vision")
    held, node = joined(replace(api, token=ada), replace(SPEC, name="a-0", study="a"))
    StudyClient(api.url, ada, "a").lease(StudyLease("ada", 60.0))
    number = node.begin_trial(1.0)
    node.tell_trial(TrialCalls(number, (TrialCall(1, "suggest"),), held.job))
    own, other = StudyClient(api.url, bob, "b"), StudyClient(api.url, bob, "a")
    own.lease(StudyLease("bob", 60.0))
    answer = GivenAnswer(held.job, number, TrialAnswer(1, "from bob"))
    own.answer(StudyAnswers("bob", (answer,)))
    assert node.trial_answers(number, 0, 0.0) == (), "the call is not of bob's study"
    with pytest.raises(UnknownJob, match="a-0 is no trial of study b"):
        own.answer(StudyAnswers("bob", (), (TrialEnd(held.job, TrialEnding.PRUNED),)))
    with pytest.raises(UnknownJob, match="a-0 is no trial of study b"):
        own.state(StudyStatement("bob", StudyTerms(), (TrialProgress(held.job),)))
    intruder = JobSpec("intruder", ("true",), study="a")
    client = api.stranger(bob)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: other.lease(StudyLease("ada", 60.0)),
        lambda: other.stop(at_once=True),
        lambda: other.set_budget(Decimal(1)),
        lambda: other.answer(StudyAnswers("ada", (answer,))),
        lambda: other.remove_checkpoints(("trial-0-20260101T000000000000",)),
        lambda: client.submit(intruder),
        lambda: client.stop("a-0"),
        lambda: client.logs("a-0", {"*": 0}),
        lambda: client.change("a-0", Change(priority=2.0)),
    )
    for attempt in attempts:
        with pytest.raises(Forbidden, match="belongs to ada of team nlp; bob is a submitter of t"):
            attempt()
    assert node.trial_answers(number, 0, 0.0) == ()
    assert api.world.store.instances.get(held.id).facts == held.facts
    assert [job.id for job in api.client.jobs()] == ["a-0"]


def test_a_team_shares_jobs_and_studies(api: Api) -> None:
    ada, bob = member(api, "ada", "nlp"), member(api, "bob", "nlp")
    assert api.stranger(ada).submit(SPEC).team == "nlp"
    api.stranger(bob).submit(JobSpec("a-1", ("true",), study="a"))
    StudyClient(api.url, ada, "a").lease(StudyLease("ada", 60.0))
    assert api.stranger(bob).change("job", Change(priority=2.0)).person == "ada"


def test_a_bundle_is_there_for_those_who_uploaded_it(api: Api, tmp_path: Path) -> None:
    archive, sha256 = packed(tmp_path)
    ada, bob = (api.stranger(member(api, name, None)) for name in ("ada", "bob"))
    ada.upload(sha256, archive)
    with pytest.raises(NotFound, match="was not uploaded"):
        bob.submit(replace(SPEC, bundle=sha256))
    bob.upload(sha256, archive)
    assert bob.submit(replace(SPEC, bundle=sha256)).person == "bob"


def test_last_lines_are_for_those_who_may_read_the_log(api: Api) -> None:
    ada = api.stranger(member(api, "ada", "nlp"))
    ada.submit(SPEC)
    failure = Failure("job-0-1", 1, 1, "cause", "s", 0, ("a secret line",))
    api.world.store.reports.add_failure("job", failure, api.world.clock.now())
    eve = api.stranger(member(api, "eve", "vision"))
    assert ada.job("job").last_lines == ("a secret line",)
    for views in ((eve.job("job"),), eve.jobs()):
        assert [view.last_lines for view in views] == [()]


def test_checkpoints_of_another_person_are_not_adopted(api: Api, tmp_path: Path) -> None:
    place = CheckpointSpec(directory=str(tmp_path / "shared"))
    ada = replace(api, token=member(api, "ada", None))
    held, node = joined(ada, replace(SPEC, checkpoint=place))
    report = training_report(40, checkpoint=CheckpointStatus(step=40))
    node.heartbeat(node_report(held, reports=(report,)))
    api.world.store.jobs.set_phase("job", JobPhase.STOPPED, api.world.clock.now())
    bob, spec = api.stranger(member(api, "bob", None)), replace(SPEC, name="job")
    spec = replace(spec, checkpoint=replace(place, adopt="job"))
    with pytest.raises(Forbidden, match="adopt checkpoints: job job belongs to ada"):
        bob.submit(spec)
    assert ada.client.submit(spec).id == "job.2"


def test_a_name_means_one_s_own_job_where_others_use_it_later(api: Api) -> None:
    """Keep a job within reach of its owner when another person reuses the name."""
    ada, bob = (replace(api, token=member(api, name, None)) for name in ("ada", "bob"))
    run(ada)
    assert bob.client.submit(SPEC).id == "job.2"
    assert ada.client.logs("job", {"*": 0}) == ()
    assert ada.client.checkpoint("job").job == "job"
    with pytest.raises(Conflict, match="job job has ended already"):
        ada.client.stop("job")
    with pytest.raises(Forbidden, match=r"stop job: job job\.2 belongs to bob"):
        ada.client.stop("job.2")
    assert bob.client.stop("job").id == "job.2"


def test_a_job_that_is_submitted_after_the_check_is_not_acted_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = api.stranger(member(api, "ada", None))
    ada.submit(SPEC)
    store, permitted = api.world.store, AccessGate.job

    def permitted_too_early(*arguments: Any) -> JobRecord:
        job = permitted(*arguments)
        store.jobs.set_phase("job", JobPhase.STOPPED, api.world.clock.now())
        api.client.submit(SPEC)
        return job

    monkeypatch.setattr(AccessGate, "job", permitted_too_early)
    with pytest.raises(Conflict):
        ada.stop("job")
    monkeypatch.undo()
    assert api.client.job("job.2").phase is JobPhase.PENDING


def test_a_resumed_job_keeps_its_owner(api: Api) -> None:
    ada = replace(api, token=member(api, "ada", "nlp"))
    run(ada)
    assert api.client.resume("job", Resumption()).person == "ada"
    assert ada.client.stop("job.2").team == "nlp"


def member(api: Api, name: str, team: str | None) -> str:
    """Return the token of a new submitter."""
    return api.client.invite(name, InvitationRequest(Role.SUBMITTER, team)).token


def test_one_name_means_the_same_job_in_all_commands(api: Api) -> None:
    ada, bob = (api.stranger(member(api, name, None)) for name in ("ada", "bob"))
    ada.submit(SPEC)
    ada.stop("job")
    api.world.tick(2)
    assert bob.submit(SPEC).id == "job.2"
    for client, meant in ((ada, "job"), (bob, "job.2"), (api.client, "job.2")):
        assert client.job("job").id == meant
    with pytest.raises(Conflict, match="job job has ended already: it is stopped"):
        ada.stop("job")
    with pytest.raises(Forbidden, match=r"job job\.2 belongs to bob"):
        ada.stop("job.2")
    assert api.client.change("job", Change(priority=2.0)).id == "job.2"
    assert api.client.job("job.1").person == "ada"
    api.client.stop("job")
    api.world.tick(2)
    with pytest.raises(
        Conflict, match=r"job\.1 of ada \(stopped\), job\.2 of bob \(stopped\): name it by"
    ):
        api.client.resume("job", Resumption())
    for client, meant in ((ada, "job"), (bob, "job.2"), (api.client, "job.2")):
        assert client.job("job").id == meant


def test_a_running_job_of_the_team_is_not_stopped_by_a_name_that_one_s_own_job_had(
    api: Api,
) -> None:
    ada, bob = (api.stranger(member(api, name, "nlp")) for name in ("ada", "bob"))
    ada.submit(SPEC)
    ada.stop("job")
    api.world.tick(2)
    bob.submit(SPEC)
    for act in (
        lambda: ada.stop("job"),
        lambda: ada.change("job", Change(priority=2.0)),
        lambda: ada.resume("job", Resumption()),
    ):
        with pytest.raises(
            Conflict, match=r"job\.1 of ada \(stopped\), job\.2 of bob \(pending\)"
        ):
            act()
    assert ada.stop("job.2").phase is JobPhase.STOPPING
