"""Jobs that go on from the checkpoint of an earlier run, and those that must not."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.checkpoint import MANIFEST, name_of
from autoscaler.domain.errors import Conflict, NotFound, SpecError, UnknownJob
from autoscaler.domain.instance import CloudInstance, CloudState, HeldInstance
from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    InstanceBounds,
    JobPhase,
    JobSpec,
    ParallelismSpec,
)
from autoscaler.domain.objective import Objective
from autoscaler.domain.report import CheckpointStatus, Ending
from autoscaler.domain.restart import RestartSpec
from autoscaler.spec.bundle import pack
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.messages import Assignment, JobView, JoinRequest, Resumption
from autoscaler.wire.node_client import NodeClient
from tests.service.agents import SPEC, joined, node_report, training_report
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor
from tests.store.read_lines import read_lines

SAVED = CheckpointStatus(step=40)


@pytest.fixture(params=["api", "stored_api"])
def either(request: pytest.FixtureRequest) -> Api:
    found: Api = request.getfixturevalue(request.param)
    return found


def run(
    api: Api, spec: JobSpec = SPEC, saves: int | None = 40, seconds: float = 0.0
) -> Assignment:
    """Let an instance join the job, save a checkpoint and end, as the job is stopped."""
    held, node = joined(api, spec)
    if seconds:
        api.world.tick(1, seconds=seconds, agents=False)
    assignment = node.assignment()
    if saves is not None:
        save(assignment, saves)
        report = training_report(saves, checkpoint=CheckpointStatus(step=saves))
        node.heartbeat(node_report(held, reports=(report,)))
    end(api, held.job)
    return assignment


def end(api: Api, job: str, phase: JobPhase = JobPhase.STOPPED) -> None:
    store, now_seconds = api.world.store, api.world.clock.now()
    for held in store.instances.of_job(job):
        give_back(api, held)
    if phase is not JobPhase.FINISHED:
        store.jobs.request_stop(job, now_seconds)
    store.jobs.set_phase(job, phase, now_seconds)


def give_back(api: Api, held: HeldInstance) -> None:
    """Let the cloud say that the instance has run for a minute and has ended."""
    now_seconds = api.world.clock.now()
    cloud_id = held.cloud_id or f"cloud of {held.id}"
    seen = CloudInstance(
        cloud_id, "", held.offer, CloudState.TERMINATED, {}, now_seconds - 60, now_seconds
    )
    api.world.store.instances.observe_cloud(held.id, seen, now_seconds)


def save(assignment: Assignment, step: int) -> None:
    place = assignment.depot or assignment.checkpoint_directory
    folder = Path(place.removeprefix("file://")) / name_of(step)
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(json.dumps({"step": step, "sha256": {}}))


def resume(api: Api, name: str = "job", **change: object) -> JobView:
    return api.client.resume(name, Resumption(**change))  # type: ignore[arg-type]


def test_a_stopped_job_goes_on_with_its_files_under_the_next_id(either: Api) -> None:
    first = run(either)
    view = resume(either)
    assert (view.id, view.phase) == ("job.2", JobPhase.PENDING)
    assert any("goes on from step 40 of job" in event.text for event in view_of(either).events)
    either.world.set_target("job.2", 1)
    either.world.tick(1, agents=False)
    second = assignment_of(either, "job.2")
    assert second.checkpoint_directory == first.checkpoint_directory
    assert (second.depot, second.outputs_directory) == (first.depot, first.outputs_directory)
    if first.grant is not None and second.grant is not None:
        assert second.grant.place == first.grant.place


def test_all_runs_of_a_job_have_the_newest_checkpoint_of_the_last(either: Api) -> None:
    first = run(either)
    resume(either)
    assert either.client.checkpoint("job").name == name_of(40)
    save(first, 60)  # into the place of both runs
    for name in ("job", "job.2"):
        found = either.client.checkpoint(name)
        assert (found.job, found.name) == ("job.2", name_of(60))


LIMITED = replace(training_report(40).bounds, kind_maxima=(("cpu-core", 8),))


def run_short_of_memory(api: Api) -> None:
    held, node = joined(api, SPEC)
    save(node.assignment(), 40)
    report = training_report(40, checkpoint=SAVED, bounds=LIMITED)
    node.heartbeat(node_report(held, reports=(report,)))
    end(api, held.job)


@pytest.mark.parametrize(
    ("changes", "maxima"),
    [
        pytest.param(None, LIMITED.kind_maxima, id="the same script"),
        pytest.param({}, LIMITED.kind_maxima, id="a job file that says the same"),
        pytest.param({"retries": 7}, LIMITED.kind_maxima, id="other settings"),
        pytest.param({"command": ("python", "-c", "pass")}, (), id="another command"),
        pytest.param({"environment": {"WIDTH": "8"}}, (), id="another environment"),
        pytest.param({"batch": BatchSpec(device_maximum=4)}, (), id="the owner's own word"),
    ],
)
def test_the_next_run_has_what_devices_take_at_once_where_the_script_is_the_same(
    api: Api, changes: dict[str, object] | None, maxima: tuple[tuple[str, int], ...]
) -> None:
    run_short_of_memory(api)
    spec = None if changes is None else replace(SPEC, **changes)  # type: ignore[arg-type]
    resume(api, spec=spec)
    assert api.world.store.jobs.get("job.2").spec.batch.kind_maxima == maxima
    api.world.set_target("job.2", 1)
    api.world.tick(1, agents=False)
    assert assignment_of(api, "job.2").spec.batch.kind_maxima == maxima


def view_of(api: Api, name: str = "job.2") -> JobView:
    return api.client.job(name)


def assignment_of(api: Api, job: str) -> Assignment:
    (held,) = api.world.store.instances.of_job(job)
    api.authentication.issue(held)
    node = api.node()
    node.join(JoinRequest(api.authentication.join_token(held), held.id))
    return node.assignment()


def test_a_job_that_is_submitted_again_starts_from_the_beginning(either: Api) -> None:
    first = run(either)
    second = run(either, saves=None)
    assert second.job == "job.2"
    places = (first.depot, first.checkpoint_directory), (second.depot, second.checkpoint_directory)
    assert places[0] != places[1]
    with pytest.raises(NotFound, match=r"job\.2 has no whole checkpoint in .*: there is nothing"):
        resume(either)


def test_nobody_submits_a_job_with_the_files_of_another(either: Api) -> None:
    run(either)
    with pytest.raises(SpecError, match="resumes: is set by castor resume JOB"):
        either.client.submit(replace(SPEC, name="thief", resumes="job"))


def test_a_run_can_be_resumed_again(either: Api) -> None:
    run(either)
    resume(either)
    end(either, "job.2")
    assert resume(either).id == "job.3"
    assert either.world.store.jobs.get("job.3").files_of == "job"


def test_changes_and_the_rest_of_the_budget_go_along(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(api, replace(SPEC, objective=Objective(budget_usd=Decimal(5))))
    monkeypatch.setattr("autoscaler.service.jobs.submissions.Ledger.spent", lambda *_: Decimal(2))
    view = resume(api, instances=InstanceBounds(maximum=3), priority=4.0)
    assert (view.bounds.maximum, view.priority) == (3, 4.0)
    assert view.objective.budget_usd == Decimal(3)
    end(api, "job.2")
    view = resume(api, objective=Objective(budget_usd=Decimal(9)))
    assert view.objective.budget_usd == Decimal(9)


def test_a_run_goes_on_with_another_command_and_other_files(either: Api, tmp_path: Path) -> None:
    first = run(either)
    work, archive = tmp_path / "work", tmp_path / "work.tar.gz"
    work.mkdir()
    (work / "train.py").write_text("lr = 0.01")
    bundle = pack(work, archive)
    spec = replace(
        SPEC, command=("python", "train.py", "--lr=0.01"), environment={"A": "b"}, retries=1
    )
    resumption = Resumption(spec=replace(spec, bundle=bundle.sha256))
    assert either.client.resume("job", resumption, archive).id == "job.2"
    either.world.set_target("job.2", 1)
    either.world.tick(1, agents=False)
    second = assignment_of(either, "job.2")
    assert second.spec.command == spec.command
    assert (second.spec.bundle, second.spec.environment) == (bundle.sha256, {"A": "b"})
    assert (second.spec.retries, second.spec.resumes) == (1, "job")
    assert second.checkpoint_directory == first.checkpoint_directory
    assert second.depot == first.depot


def test_the_skipped_steps_of_a_resumed_run_are_those_of_all_runs(api: Api) -> None:
    run(api)
    resume(api)
    api.world.set_target("job.2", 1)
    api.world.tick(1, agents=False)
    (held,) = api.world.store.instances.of_job("job.2")
    api.authentication.issue(held)
    node = api.node()
    node.join(JoinRequest(api.authentication.join_token(held), held.id))
    report = training_report(60, skipped_steps=16)
    node.heartbeat(node_report(held, reports=(report,), job="job.2"))
    texts = [event.text for event in view_of(api).events if event.kind == "skipped"]
    assert [text.partition(":")[0] for text in texts] == [
        "at least 16 of the steps of all its runs skipped"
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "other"}, "name: other is not job"),
        ({"checkpoint": CheckpointSpec("elsewhere")}, "checkpoint.directory: the checkpoints of"),
        ({"study": "search"}, "study: job is no trial"),
        ({"retries": -1}, "retries"),
        ({"resumes": "x"}, "resumes: is set by castor resume JOB"),
    ],
)
def test_the_next_run_of_another_spec_is_checked(
    api: Api, change: dict[str, object], words: str
) -> None:
    run(api)
    with pytest.raises(SpecError, match=words):
        resume(api, spec=replace(SPEC, **change))  # type: ignore[arg-type]


def test_the_budget_of_a_job_file_is_for_all_runs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(SPEC, objective=Objective(budget_usd=Decimal(5)))
    run(api, spec)
    monkeypatch.setattr("autoscaler.service.jobs.submissions.Ledger.spent", lambda *_: Decimal(1))
    assert resume(api, spec=spec).objective.budget_usd == Decimal(4)
    end(api, "job.2")
    assert resume(api, spec=spec).objective.budget_usd == Decimal(3)


def test_a_budget_that_is_used_up_is_told_with_the_way_out(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(api, replace(SPEC, objective=Objective(budget_usd=Decimal("0.02"))))
    monkeypatch.setattr(
        "autoscaler.service.jobs.submissions.Ledger.spent", lambda *_: Decimal("0.0201")
    )
    with pytest.raises(SpecError, match=r"\$0\.02 are used up.*objective=budget"):
        resume(api)


def test_what_can_not_be_resumed_is_told(api: Api) -> None:
    with pytest.raises(UnknownJob):
        resume(api)
    held, _ = joined(api, SPEC)
    with pytest.raises(Conflict, match="only one that has ended can be resumed"):
        resume(api)
    api.world.store.jobs.request_stop("job", api.world.clock.now())
    api.world.store.jobs.set_phase("job", JobPhase.FAILED, api.world.clock.now())
    with pytest.raises(Conflict, match="still gives 1 of its instances back"):
        resume(api)
    give_back(api, held)
    with pytest.raises(NotFound, match="submit the job again to start from the beginning"):
        resume(api)


def test_a_complete_job_is_not_resumed(api: Api) -> None:
    held, _ = joined(api, SPEC)
    end(api, held.job, JobPhase.FINISHED)
    with pytest.raises(Conflict, match="complete: there is nothing to go on with"):
        resume(api)


def test_a_job_whose_script_ended_early_goes_on_from_its_checkpoint(api: Api) -> None:
    held, node = joined(api, SPEC)
    save(node.assignment(), 40)
    report = training_report(40, checkpoint=CheckpointStatus(step=40))
    node.heartbeat(node_report(held, reports=(report,)))
    node.heartbeat(node_report(held, is_complete=True, ending=Ending.EARLY))
    end(api, held.job, JobPhase.FINISHED)
    assert resume(api).id == f"{held.job}.2"


def test_trials_are_resumed_by_their_study(api: Api) -> None:
    run(api, replace(SPEC, study="search"))
    with pytest.raises(Conflict, match="start the study again"):
        resume(api)


def sharing(directory: Path, name: str, adopt: str | None = None) -> JobSpec:
    return replace(SPEC, name=name, checkpoint=CheckpointSpec(str(directory), adopt=adopt))


def test_a_directory_with_anothers_checkpoints_is_refused_at_submission(
    either: Api, tmp_path: Path
) -> None:
    run(either, sharing(tmp_path / "shared", "first"))
    with pytest.raises(SpecError, match="has the checkpoints of first: `castor resume first`"):
        either.client.submit(sharing(tmp_path / "shared", "second"))


def test_a_job_of_the_same_name_does_not_adopt_silently_either(
    either: Api, tmp_path: Path
) -> None:
    run(either, sharing(tmp_path / "shared", "first"))
    with pytest.raises(SpecError, match="castor resume first"):
        either.client.submit(sharing(tmp_path / "shared", "first"))
    assert resume(either, "first").id == "first.2"


def test_a_job_that_says_so_adopts(either: Api, tmp_path: Path) -> None:
    run(either, sharing(tmp_path / "shared", "first"))
    _, node = joined(either, sharing(tmp_path / "shared", "second", adopt="first"))
    assignment = node.assignment()
    assert assignment.adopts == "first"
    assert assignment.checkpoint_owner is not None
    assert assignment.checkpoint_owner.startswith("second#")


def test_the_directory_that_another_job_was_given_is_refused(api: Api) -> None:
    given = run(api).checkpoint_directory
    with pytest.raises(SpecError, match="is kept for another job"):
        api.client.submit(replace(SPEC, name="thief", checkpoint=CheckpointSpec(given)))


def test_a_directory_in_use_is_refused(api: Api, tmp_path: Path) -> None:
    api.client.submit(sharing(tmp_path / "shared", "first"))
    with pytest.raises(Conflict, match="is that of first, which is pending"):
        api.client.submit(sharing(tmp_path / "shared", "second", adopt="first"))


def test_submissions_and_resumptions_read_no_list_of_all_jobs(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(api, sharing(tmp_path / "other", "other"))
    run(api, sharing(tmp_path / "shared", "first"))
    monkeypatch.setattr(api.world.store.jobs, "all", None)
    (first,) = api.world.store.jobs.of_directory(str(tmp_path / "shared"))
    assert first.id == "first"
    with read_lines() as lines:
        resumption = Resumption(spec=replace(first.spec, person=None))
        assert api.client.resume("first", resumption).id == "first.2"
    assert {line.job for line in lines} == {"first"}
    api.client.submit(sharing(tmp_path / "mine", "second"))


def test_a_directory_in_which_nothing_was_saved_is_free(api: Api, tmp_path: Path) -> None:
    run(api, sharing(tmp_path / "shared", "first"), saves=None)
    assert api.client.submit(sharing(tmp_path / "shared", "second")).id == "second"


def test_studies_share_their_directory(api: Api, tmp_path: Path) -> None:
    for name in ("first", "second"):
        _, node = joined(api, replace(sharing(tmp_path / "shared", name), study="search"))
        assert node.assignment().checkpoint_owner is None


def test_to_adopt_needs_an_absolute_directory(api: Api) -> None:
    spec = replace(SPEC, checkpoint=CheckpointSpec("own", adopt="first"))
    with pytest.raises(SpecError, match=r"checkpoint\.adopt: needs an absolute directory"):
        api.client.submit(spec)


def test_a_restartable_job_goes_on_from_what_its_command_saved(api: Api) -> None:
    spec = replace(SPEC, restart=RestartSpec("ckpt/*"), instances=InstanceBounds(1, 1))
    earlier = run(api, spec, saves=None)
    resumed = resume(api)
    assert resumed.id == "job.2"
    later = api.world.store.jobs.get(resumed.id)
    assert later.files_of == earlier.job and later.number > earlier.job_number
    texts = [event.text for event in api.world.store.events.latest(resumed.id, 9)]
    assert any("goes on from the newest checkpoint of job" in text for text in texts)


def test_a_shard_to_be_chosen_stays_as_it_was_chosen(api: Api) -> None:
    undecided = replace(SPEC, parallelism=ParallelismSpec(shards=(1, 2)))
    run(api, undecided)
    (first,) = api.world.store.jobs.all()
    resumption = Resumption(spec=replace(undecided, bundle=first.spec.bundle))
    resumed = api.client.resume(first.id, resumption)
    stored = api.world.store.jobs.get(resumed.id).spec.parallelism
    assert stored == first.spec.parallelism
    assert not stored.is_undecided


def test_a_resumed_job_has_the_sums_over_its_runs(api: Api) -> None:
    run(api, seconds=100.0)
    first = api.client.receipt("job")
    assert first.whole.usd > 0 and first.all_runs is None
    resume(api)
    waiting = api.client.receipt("job")
    assert (waiting.job, waiting.whole.usd, waiting.useful_examples) == ("job.2", 0, None)
    assert waiting.all_runs is not None and waiting.all_runs.useful_examples == 40 * 32.0
    assert (waiting.all_runs.runs, waiting.all_runs.whole) == (2, first.whole)
    page = PageVisitor(api).text("/jobs/job.2")
    assert "This run has cost nothing yet" in page and "All 2 runs:" in page

    held, node = trained(api, "job.2")
    node.heartbeat(node_report(held, job="job.2", reports=(training_report(100),)))
    end(api, "job.2")
    resume(api)
    held, node = trained(api, "job.3")
    third = api.client.receipt("job.3")
    runs = [api.client.receipt(job) for job in ("job.1", "job.2")] + [third]
    assert third.all_runs is not None and third.all_runs.runs == 3
    whole = third.all_runs.whole
    assert whole.usd == sum(view.whole.usd for view in runs) == api.client.costs().total_usd
    assert whole.billed_seconds == sum(view.whole.billed_seconds for view in runs)
    for part in whole.parts:
        parts = [own for view in runs for own in view.whole.parts if own.category is part.category]
        assert part.usd == sum(own.usd for own in parts)
        assert part.seconds == pytest.approx(sum(own.seconds for own in parts))
    assert third.useful_examples is None and third.all_runs.useful_examples == 100 * 32.0
    second = runs[1].all_runs
    assert second is not None and (second.runs, runs[1].useful_examples) == (2, 60 * 32.0)


def trained(api: Api, job: str) -> tuple[HeldInstance, NodeClient]:
    """Let a resumed job hold an instance for a hundred seconds."""
    api.world.set_target(job, 1)
    api.world.tick(1, agents=False)
    (held,) = api.world.store.instances.of_job(job)
    api.authentication.issue(held)
    node = api.node()
    node.join(JoinRequest(api.authentication.join_token(held), held.id))
    api.world.tick(1, seconds=100.0, agents=False)
    return held, node


def test_everyone_who_sees_costs_sees_those_of_all_runs(api: Api) -> None:
    run(api, seconds=100.0)
    resume(api)
    viewer = api.client.invite("vera", InvitationRequest(Role.VIEWER))
    told = api.stranger(viewer.token).receipt("job.2")
    assert told.all_runs is not None
    assert told.all_runs.whole == api.stranger(viewer.token).receipt("job.1").whole
    assert told.all_runs.whole.usd > 0


def test_another_job_of_the_same_name_is_no_run_of_it(api: Api) -> None:
    run(api)
    api.client.submit(SPEC)
    assert api.client.receipt("job.2").all_runs is None
