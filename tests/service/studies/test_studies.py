from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from autoscaler.domain.errors import Conflict, NotAllowed, NotFound, SpecError, StoreError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.domain.trial import (
    GivenAnswer,
    StudyStop,
    TrialAnswer,
    TrialCall,
    TrialEnd,
    TrialEnding,
    WaitingCall,
)
from autoscaler.wire.client import StudyClient
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import Submission, Wanted
from autoscaler.wire.study_messages import StudyAnswers, StudyLease, StudyStatement, TrialCalls
from tests.service.agents import joined, node_report
from tests.service.conftest import TOKEN, Api

TRIAL = JobSpec(
    "sweep-0", ("python", "-m", "worker"), instances=InstanceBounds(maximum=2), study="sweep"
)


def driver(api: Api, holder: str = "ada", study: str = "sweep") -> StudyClient:
    client = StudyClient(api.url, TOKEN, study)
    client.lease(StudyLease(holder, 30.0))
    return client


def soon(act: Callable[[], object], seconds: float = 0.2) -> threading.Thread:
    def run() -> None:
        time.sleep(seconds)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_call_finds_its_driver_and_the_answer_its_trial(api: Api) -> None:
    ours, (held, node) = driver(api), joined(api, TRIAL)
    incarnation = node.begin_trial(5.0)
    call = TrialCall(1, "what?")
    told = soon(lambda: node.tell_trial(TrialCalls(incarnation, (call,))))
    assert ours.calls("ada", 20.0) == (WaitingCall(held.job, incarnation, call),)
    told.join()
    answer = TrialAnswer(1, "that")
    given = StudyAnswers("ada", (GivenAnswer(held.job, incarnation, answer),))
    answered = soon(lambda: ours.answer(given))
    assert node.trial_answers(incarnation, 0, 20.0) == (answer,)
    answered.join()
    assert ours.calls("ada", 0.0) == ()
    assert node.trial_answers(incarnation, 1, 0.05) == ()


def test_a_request_brings_the_next_call_and_another_one_its_answer(api: Api) -> None:
    """Check that a question takes one request of each side."""
    ours, (held, node) = driver(api), joined(api, TRIAL)
    incarnation = node.begin_trial(5.0)
    first, second = TrialCall(1, "what?"), TrialCall(2, "and then?")
    node.tell_trial(TrialCalls(incarnation, (first,)))
    answers = [TrialAnswer(1, "that"), TrialAnswer(2, "this")]
    given = [GivenAnswer(held.job, incarnation, answer) for answer in answers]
    heard: list[tuple[TrialAnswer, ...]] = []
    calls = TrialCalls(incarnation, (second,))
    told = soon(lambda: heard.append(node.tell_trial(calls, after=1, wait_seconds=20.0)))
    waiting = ours.answer(StudyAnswers("ada", (given[0],)), 20.0)
    assert waiting == (WaitingCall(held.job, incarnation, second),)
    assert ours.answer(StudyAnswers("ada", (given[1],)), 0.05) == ()
    told.join()
    assert heard == [(answers[1],)]


@pytest.mark.parametrize(
    ("ending", "cause", "phase", "kind"),
    [
        (TrialEnding.COMPLETE, None, JobPhase.FINISHED, "finished"),
        (TrialEnding.PRUNED, "pruned at step 3", JobPhase.STOPPED, "pruned"),
        (TrialEnding.FAILED, "ValueError: no such layer", JobPhase.FAILED, "failed"),
        (TrialEnding.FAILED, None, JobPhase.FAILED, "failed"),
    ],
)
def test_the_job_of_a_trial_ends_as_the_trial_did(
    api: Api, ending: TrialEnding, cause: str | None, phase: JobPhase, kind: str
) -> None:
    """And its instance stays for the next trial, however this one ended."""
    ours, (held, node) = driver(api), joined(api, TRIAL)
    ours.state(StudyStatement("ada", StudyTerms(to_begin=1)))
    api.world.clock.advance(10.0)  # an instance that boots for 10 s stays for 10 s
    node.heartbeat(node_report(held))
    ours.answer(StudyAnswers("ada", (), (TrialEnd(held.job, ending, cause),)))
    report = node_report(held, phase=InstancePhase.DRAINED, is_complete=True)
    node.heartbeat(report)
    api.world.tick(1, agents=False)
    job = api.client.job(held.job)
    assert job.phase is phase
    assert job.trial_ending is (ending if ending is TrialEnding.PRUNED else None)
    expected = cause if ending is not TrialEnding.FAILED else cause or "its trial failed"
    assert job.cause == expected
    assert [event.text for event in job.events if event.kind == kind] == [
        expected or "its training is complete"
    ]
    assert node.heartbeat(report).wanted is Wanted.RUN
    ours.leave("ada")
    api.world.tick(1, agents=False)
    assert node.heartbeat(report).wanted is Wanted.DRAIN


@pytest.mark.parametrize(
    ("ending", "phase"),
    [
        (TrialEnding.COMPLETE, JobPhase.FINISHED),
        (TrialEnding.PRUNED, JobPhase.STOPPED),
        (TrialEnding.FAILED, JobPhase.FAILED),
    ],
)
def test_a_trial_whose_instance_is_lost_after_its_end_has_ended(
    api: Api, ending: TrialEnding, phase: JobPhase
) -> None:
    """The worker has not exited when its instance is lost, so no agent reports the end."""
    ours, (held, node) = driver(api), joined(api, TRIAL)
    ours.state(StudyStatement("ada", StudyTerms(to_begin=0)))
    node.heartbeat(node_report(held))
    api.world.tick(1, agents=False)
    ours.answer(StudyAnswers("ada", (), (TrialEnd(held.job, ending),)))
    cloud_id = api.world.store.instances.get(held.id).cloud_id
    assert cloud_id is not None
    api.world.cloud.lose(cloud_id)
    api.world.tick(3, agents=False)
    job = api.client.job(held.job)
    assert (job.phase, job.instances) == (phase, ())


def test_a_trial_that_has_ended_is_not_run_again_on_an_instance_ordered_since(api: Api) -> None:
    """The instance is released as the worker exits, and replaced before it is gone."""
    ours, (held, node) = driver(api), joined(api, TRIAL)
    ours.state(StudyStatement("ada", StudyTerms(to_begin=0)))
    node.heartbeat(node_report(held))
    api.world.tick(1, agents=False)
    ours.answer(StudyAnswers("ada", (), (TrialEnd(held.job, TrialEnding.COMPLETE),)))
    store = api.world.store
    store.instances.release(held.id, api.world.clock.now())
    api.world.tick(2, agents=False)
    assert {other.id for other in store.instances.of_job(held.job)} > {held.id}
    cloud_id = store.instances.get(held.id).cloud_id
    assert cloud_id is not None
    api.world.cloud.lose(cloud_id)
    api.world.tick(3, agents=False)
    assert api.client.job(held.job).phase is JobPhase.FINISHED


def test_a_trial_that_is_pruned_while_it_holds_nothing_stops_with_that_reason(api: Api) -> None:
    ours, job = driver(api), api.client.submit(TRIAL).id
    end = TrialEnd(job, TrialEnding.PRUNED, "pruned at step 3")
    ours.answer(StudyAnswers("ada", (), (end,)))
    api.world.tick(1, agents=False)
    view = api.client.job(job)
    assert (view.phase, view.cause) == (JobPhase.STOPPED, end.cause)


@pytest.mark.parametrize("cause", ["", "two\nlines", "x" * 2001])
def test_a_cause_of_an_end_is_one_line(api: Api, cause: str) -> None:
    ours, job = driver(api), api.client.submit(TRIAL).id
    end = TrialEnd(job, TrialEnding.FAILED, cause)
    with pytest.raises(SpecError, match=r"ended\.cause"):
        ours.answer(StudyAnswers("ada", (), (end,)))


def test_what_was_said_before_is_found_at_once(api: Api) -> None:
    (_, node), ours = joined(api, TRIAL), driver(api)
    incarnation = node.begin_trial(5.0)
    for _ in range(2):
        node.tell_trial(TrialCalls(incarnation, (TrialCall(1, "a"), TrialCall(2, "b"))))
    assert [each.call.text for each in ours.calls("ada", 0.0)] == ["a", "b"]


def test_a_second_driver_waits(api: Api) -> None:
    ours = driver(api)
    with pytest.raises(Conflict, match="study sweep is driven by ada"):
        driver(api, "bob")
    other = StudyClient(api.url, TOKEN, "sweep")
    with pytest.raises(Conflict, match="driven by ada, not by bob"):
        other.calls("bob", 0.0)
    with pytest.raises(Conflict, match="driven by ada, not by bob"):
        other.answer(StudyAnswers("bob", ()))
    driver(api, "bob", "another")
    ours.leave("ada")
    assert driver(api, "bob").calls("bob", 0.0) == ()


def test_a_driver_that_died_is_succeeded_when_its_lease_ends(api: Api) -> None:
    driver(api)
    api.world.clock.sleep(31.0)
    driver(api, "bob")


def test_a_driver_that_was_overtaken_neither_submits_nor_stops_trials(api: Api) -> None:
    ours = driver(api)
    api.client.submit(TRIAL, driver="ada")
    api.world.clock.sleep(31.0)
    second = replace(TRIAL, name="sweep-1")
    assert api.client.submit(second, driver="ada").id == "sweep-1"  # nobody else has taken it
    driver(api, "bob")
    body = encode(Submission, Submission(replace(TRIAL, name="sweep-2")))
    headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "a"}
    for _ in range(2):
        address = f"{api.url}/v1/jobs?driver=ada"
        reply = httpx.post(address, content=body, headers=headers, timeout=30.0)
        assert reply.status_code == 409
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["error"] == "Conflict"
        assert reply.json()["detail"] == "study sweep is driven by bob, not by ada"
    with pytest.raises(Conflict, match="driven by bob, not by ada"):
        api.client.stop("sweep-1", driver="ada")
    jobs = api.world.store.jobs.alive()
    assert [job.id for job in jobs] == ["sweep-0", "sweep-1"]
    assert {job.phase for job in jobs} == {JobPhase.PENDING}
    with pytest.raises(Conflict, match="driven by bob"):
        ours.lease(StudyLease("ada", 30.0), renews=True)
    assert api.client.submit(replace(TRIAL, name="sweep-2"), driver="bob").id == "sweep-2"
    assert api.client.submit(replace(TRIAL, name="sweep-3")).id == "sweep-3"  # an earlier release
    assert api.client.stop("sweep-3").phase is JobPhase.STOPPING


def test_a_lease_is_not_renewed_after_another_driver_has_come_and_gone(api: Api) -> None:
    ours = driver(api)
    api.world.clock.sleep(31.0)
    driver(api, "bob").leave("bob")
    with pytest.raises(Conflict, match="driven by nobody, not by ada"):
        ours.lease(StudyLease("ada", 30.0), renews=True)
    ours.lease(StudyLease("ada", 30.0))  # of a driver of an earlier release


@pytest.mark.parametrize("name", ["", "a%0Ab", "a" * 201])
def test_the_name_of_a_driver_is_checked(api: Api, name: str) -> None:
    body = encode(Submission, Submission(TRIAL))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    address = f"{api.url}/v1/jobs?driver={name}"
    reply = httpx.post(address, content=body, headers=headers, timeout=30.0)
    assert (reply.status_code, reply.json()["error"]) == (422, "SpecError")
    assert "driver" in reply.json()["field"]
    assert api.world.store.jobs.alive() == ()


def test_only_a_trial_has_a_driver(api: Api) -> None:
    with pytest.raises(SpecError, match="driver: job job is in no study"):
        api.client.submit(JobSpec("job", ("python",)), driver="ada")
    api.client.submit(JobSpec("job", ("python",)))
    with pytest.raises(SpecError, match="driver: job job is in no study"):
        api.client.stop("job", driver="ada")


def test_a_stop_reaches_the_driver_and_ends_with_it(api: Api) -> None:
    stranger = StudyClient(api.url, TOKEN, "sweep")
    with pytest.raises(Conflict, match="study sweep has no driver"):
        stranger.stop(at_once=False)
    ours = driver(api)
    stranger.stop(at_once=False)
    assert ours.lease(StudyLease("ada", 30.0)) is StudyStop.WITH_ITS_TRIALS
    stranger.stop(at_once=True)
    assert ours.lease(StudyLease("ada", 30.0)) is StudyStop.AT_ONCE
    ours.leave("ada")
    assert ours.lease(StudyLease("bob", 30.0)) is StudyStop.NOT


def test_terms_progress_and_budget_of_a_study_are_seen(api: Api) -> None:
    """And the way from the start of training to the first report is a speed."""
    with pytest.raises(NotFound, match="study sweep has no terms"):
        StudyClient(api.url, TOKEN, "sweep").view()
    ours, (held, _) = driver(api), joined(api, TRIAL)
    terms = StudyTerms(objective=Objective(budget_usd=Decimal(5)), to_begin=2)
    ours.state(StudyStatement("ada", terms, (TrialProgress(held.job),)))
    api.world.tick(2, agents=False)
    now_seconds = api.world.clock.now()
    api.world.store.instances.record_node(held.id, InstancePhase.TRAINING, now_seconds)
    api.world.clock.advance(20.0)
    told = TrialProgress(held.job, 3.0, reports=((3.0, 0.5),))
    ours.state(StudyStatement("ada", terms, (told,)))
    view = ours.view()
    assert (view.driver, view.terms) == ("ada", terms)
    assert [each.stands for each in view.trials] == [told]
    (speed,) = view.trials[0].speeds
    assert (speed.work, speed.seconds, speed.has_start) == (3.0, 20.0, True)
    assert view.usd_per_hour == held.usd_per_hour and view.spent_usd > 0
    ours.set_budget(Decimal("7.5"))
    ours.state(StudyStatement("ada", terms))
    stated = ours.view().terms
    assert stated is not None and stated.objective.budget_usd == Decimal("7.5")
    with pytest.raises(SpecError, match=r"budget_usd: .0. is not an amount above"):
        ours.set_budget(Decimal(0))
    with pytest.raises(Conflict, match="driven by ada, not by bob"):
        ours.state(StudyStatement("bob", terms))


def test_a_trial_that_ran_while_nobody_looked_is_in_the_cost_of_its_study(api: Api) -> None:
    ours, world = driver(api), api.world
    ours.state(StudyStatement("ada", StudyTerms()))
    assert ours.view().spent_usd == 0
    trial = world.submit("sweep-0", study="sweep")
    ours.state(StudyStatement("ada", StudyTerms(), (TrialProgress(trial),)))
    world.set_target(trial, 1)
    world.tick(6)
    world.store.jobs.request_stop(trial, world.clock.now())
    world.tick(10)
    assert world.store.jobs.get(trial).phase is JobPhase.STOPPED
    assert (ours.view().spent_usd or 0) > 0


def test_a_file_of_a_trial_reaches_its_driver(api: Api, tmp_path: Path) -> None:
    ours, (_, node) = driver(api), joined(api, TRIAL)
    sha256 = hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(NotFound, match="was not uploaded"):
        ours.fetch_file(sha256, tmp_path / "fetched")
    for _ in range(2):
        node.put_trial_file(sha256, io.BytesIO(b"weights"))
    ours.fetch_file(sha256, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"weights"
    with pytest.raises(SpecError, match="it was changed on its way"):
        node.put_trial_file(sha256, io.BytesIO(b"others"))
    with pytest.raises(SpecError, match="larger than the 1,000 bytes"):
        node.put_trial_file(sha256, io.BytesIO(b"x" * 2000))
    for _ in range(2):
        ours.remove_file(sha256)
    assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    node.put_trial_file(sha256, io.BytesIO(b"weights"))
    ours.leave("ada")
    with pytest.raises(NotFound):
        ours.fetch_file(sha256, tmp_path / "fetched")


def test_a_driver_that_was_overtaken_removes_no_files(api: Api, tmp_path: Path) -> None:
    ours, (_, node) = driver(api), joined(api, TRIAL)
    api.world.clock.advance(1000.0)
    ours.lease(StudyLease("bob", 30.0))
    sha256 = hashlib.sha256(b"weights").hexdigest()
    node.put_trial_file(sha256, io.BytesIO(b"weights"))
    ours.leave("ada")
    ours.fetch_file(sha256, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"weights"


def test_a_start_that_was_overtaken_is_fenced(api: Api) -> None:
    _, node = joined(api, TRIAL)
    first = node.begin_trial(5.0)
    assert node.begin_trial(5.0) == first
    second = node.begin_trial(7.0)
    with pytest.raises(Conflict, match="is over"):
        node.tell_trial(TrialCalls(first, (TrialCall(1, "late"),)))
    node.tell_trial(TrialCalls(second, (TrialCall(1, "now"),)))


def test_who_is_to_leave_takes_up_no_trial(api: Api) -> None:
    held, node = joined(api, TRIAL)
    api.world.store.instances.release(held.id, api.world.clock.now())
    with pytest.raises(NotAllowed, match="is to leave"):
        node.begin_trial(5.0)


def test_a_job_without_a_study_is_no_trial(api: Api) -> None:
    _, node = joined(api, JobSpec("job", ("python",)))
    with pytest.raises(NotAllowed, match="job job is no trial of a study"):
        node.begin_trial(5.0)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/studies/sweep/lease"),
        ("DELETE", "/v1/studies/sweep/lease?holder=ada"),
        ("POST", "/v1/studies/sweep/stop?at_once=true"),
        ("GET", f"/v1/studies/sweep/files/{'0' * 64}"),
        ("DELETE", f"/v1/studies/sweep/files/{'0' * 64}"),
        ("PUT", f"/v1/node/trial/files/{'0' * 64}"),
        ("GET", "/v1/studies/sweep/calls?holder=ada"),
        ("POST", "/v1/studies/sweep/answers"),
        ("POST", "/v1/node/trial?started_seconds=1"),
        ("POST", "/v1/node/trial/calls"),
        ("GET", "/v1/node/trial/answers?incarnation=1&after=0"),
    ],
)
def test_everything_refuses_without_a_token(api: Api, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert (
            httpx.request(method, api.url + path, headers=headers, timeout=30.0).status_code == 401
        )


def test_what_cannot_be_read_of_a_study_is_its_trouble(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(self: object, study: str) -> None:
        raise StoreError(f"the terms of {study} can't be read")

    ours = driver(api)
    ours.state(StudyStatement("ada", StudyTerms()))
    monkeypatch.setattr(type(api.world.store.studies), "terms", unreadable)
    view = ours.view()
    assert (view.driver, view.terms) == ("ada", None)
    assert view.trouble == "the terms of sweep can't be read"


def test_checkpoints_of_trials_are_removed_by_name(api: Api) -> None:
    ours, (_, node) = driver(api), joined(api, TRIAL)
    place = Path(node.assignment().checkpoint_directory)
    kept, gone = (f"trial-{number}-20260101T000000000000" for number in range(2))
    (place / gone).mkdir(parents=True)
    for name in (f"{kept}.checkpoint", f"{gone}.checkpoint", f"{gone}/step-3", "other"):
        (place / name).write_text("state")
    with pytest.raises(SpecError, match=r"trials: 'trial-1-\.\./\.\.' is none"):
        ours.remove_checkpoints((gone, "trial-1-../.."))
    assert ours.remove_checkpoints((gone, "trial-7-20260101T000000000000")) == 1
    assert sorted(path.name for path in place.iterdir()) == ["other", f"{kept}.checkpoint"]


def test_messages_of_any_length_reach_the_other_end(api: Api) -> None:
    ours, (held, node) = driver(api), joined(api, TRIAL)
    incarnation = node.begin_trial(1.0)
    long = "x" * 700_000
    node.tell_trial(TrialCalls(incarnation, tuple(TrialCall(n, long) for n in range(1, 9))))
    waiting = ours.calls("ada", 0.0)
    assert [len(each.call.text) for each in waiting] == [len(long)] * 8
    answers = (TrialAnswer(each.call.number, long) for each in waiting)
    given = tuple(GivenAnswer(held.job, incarnation, answer) for answer in answers)
    ours.answer(StudyAnswers("ada", given))
    assert len(node.trial_answers(incarnation, 0, 0.0)) == 8
    reports = tuple((float(n), 0.5) for n in range(100_000))
    trials = tuple(TrialProgress(held.job, reports=reports) for _ in range(4))
    ours.state(StudyStatement("ada", StudyTerms(), trials))


def test_checkpoints_are_not_removed_through_a_link_that_a_job_has_made(
    api: Api, tmp_path: Path
) -> None:
    ours = driver(api)
    api.client.submit(TRIAL)
    name = "trial-0-20260101T000000000000"
    victim = tmp_path / "victim" / name
    victim.mkdir(parents=True)
    (victim / "thesis.tex").write_text("important")
    place = Path(api.client.job("sweep-0").checkpoint_directory)
    place.parent.mkdir(parents=True)
    place.symlink_to(victim.parent)
    assert ours.remove_checkpoints((name,)) == 0
    assert (victim / "thesis.tex").exists()
    place.unlink()
    (place / name).mkdir(parents=True)
    (place / name / "link").symlink_to(victim)
    assert ours.remove_checkpoints((name,)) == 1
    assert list(place.iterdir()) == []
    assert (victim / "thesis.tex").exists()
