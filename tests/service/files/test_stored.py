"""The API of a deployment whose jobs keep their files in a cloud's storage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from autoscaler.domain.errors import (
    Conflict,
    NotFound,
    PermissionDenied,
    SpecError,
    Unavailable,
)
from autoscaler.domain.job import CheckpointSpec, JobSpec
from autoscaler.objects import Objects
from autoscaler.service.files import stored
from autoscaler.service.files.job_log_limit import LOGS_DROPPED, stored_limit
from autoscaler.service.files.stored import checkpoint_folder
from autoscaler.service.files.stored_logs import StoredLogs
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import JoinRequest
from tests.service.agents import SPEC, joined, launched, packed
from tests.service.conftest import TOKEN, Api, FolderStorage

TRIAL = "trial-1-20260101T000000000000"


def storage(api: Api) -> FolderStorage:
    assert api.storage is not None
    return api.storage


def spec_with_bundle(api: Api, directory: Path) -> JobSpec:
    archive, sha256 = packed(directory)
    api.client.upload(sha256, archive)
    return replace(SPEC, bundle=sha256)


def folder(directory: str | None) -> str | None:
    return checkpoint_folder(replace(SPEC, checkpoint=CheckpointSpec(directory)))


def test_an_instance_is_told_of_its_jobs_place_and_given_leave_for_it(
    stored_api: Api, tmp_path: Path
) -> None:
    _, node = joined(stored_api, spec_with_bundle(stored_api, tmp_path))
    assignment = node.assignment()
    place = storage(stored_api).place("job")
    assert assignment.checkpoint_directory == "checkpoints"
    assert assignment.depot == f"{place}/checkpoints"
    assert assignment.grant is not None
    assert (assignment.grant.place, assignment.grant.credential) == (place, {"token": "hush"})
    assert node.grant("job") == assignment.grant
    with pytest.raises(Conflict, match="works for job by now, not for another"):
        node.grant("another")
    assert stored_api.client.job("job").checkpoint_directory == f"{place}/checkpoints"


def test_a_bundle_is_put_there_once(
    stored_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_with_bundle(stored_api, tmp_path)
    _, node = joined(stored_api, spec)
    bundles = storage(stored_api).bundles
    assert bundles.get(f"{spec.bundle}.tar.gz") == (tmp_path / "archive").read_bytes()
    bundles.put(f"{spec.bundle}.tar.gz", b"packed before")
    joined(stored_api, replace(spec, name="again"))
    assignment = node.assignment()
    assert assignment.grant is not None
    assert assignment.grant.bundle == f"{bundles.place}/{spec.bundle}.tar.gz"
    assert bundles.get(f"{spec.bundle}.tar.gz") == b"packed before"


def test_where_the_bundle_can_not_be_put_instances_fetch_it_here(
    stored_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Objects, name: str) -> bool:
        raise Unavailable(f"{name}: away")

    monkeypatch.setattr(Objects, "exists", away)
    spec = spec_with_bundle(stored_api, tmp_path)
    _, node = joined(stored_api, spec)
    assert storage(stored_api).granted[-1] == ("job", None)
    node.fetch_bundle(tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == (tmp_path / "archive").read_bytes()
    monkeypatch.undo()
    assert node.assignment().grant is not None
    assert storage(stored_api).granted[-1] == ("job", f"{spec.bundle}.tar.gz"), "another time"


def test_a_grant_that_is_refused_is_told_and_costs_no_token(stored_api: Api) -> None:
    storage(stored_api).trouble = PermissionDenied("us-east-1: AssumeRole: allow it")
    held = launched(stored_api)
    token = stored_api.authentication.join_token(held)
    node = stored_api.node()
    for _ in range(3):
        with pytest.raises(Unavailable, match="no leave for the job's storage: us-east-1: Assume"):
            node.join(JoinRequest(token, held.id))
    told = [each for each in stored_api.client.job("job").events if each.kind == "storage"]
    assert [each.text for each in told] == [
        "no leave for the job's storage: us-east-1: AssumeRole: allow it"
    ], "and once"
    storage(stored_api).trouble = None
    node.join(JoinRequest(token, held.id))
    storage(stored_api).trouble = PermissionDenied("us-east-1: AssumeRole: allow it again")
    with pytest.raises(Unavailable, match="allow it again"):
        node.grant("job")


def test_without_storage_there_is_no_grant(api: Api) -> None:
    _, node = joined(api)
    assignment = node.assignment()
    assert (assignment.grant, assignment.depot) == (None, None)
    assert Path(assignment.checkpoint_directory).is_absolute()
    with pytest.raises(NotFound, match="the files of job are not in storage"):
        node.grant("job")


@pytest.mark.parametrize(
    ("directory", "found"),
    [(None, "checkpoints"), ("mine/here", "mine/here"), ("./mine/", "mine"), ("/fsx/mine", None)],
)
def test_the_job_file_may_name_a_folder_or_a_disk(directory: str | None, found: str) -> None:
    assert folder(directory) == found


@pytest.mark.parametrize("directory", ["../job-2", "a/../../b", "s3://mine/a", "a*", ".", "a b"])
def test_a_folder_that_leads_elsewhere_is_refused(stored_api: Api, directory: str) -> None:
    spec = replace(SPEC, checkpoint=CheckpointSpec(directory))
    with pytest.raises(
        SpecError, match=r"checkpoint\.directory: .* (no folder in a storage|inside the job)"
    ):
        stored_api.client.submit(spec)


def test_checkpoints_on_a_disk_of_the_owners_stay_there(stored_api: Api) -> None:
    _, node = joined(stored_api, replace(SPEC, checkpoint=CheckpointSpec("/fsx/mine")))
    assignment = node.assignment()
    assert (assignment.checkpoint_directory, assignment.depot) == ("/fsx/mine", None)
    assert assignment.grant is not None, "for its log and its bundle"
    assert stored_api.client.job("job").checkpoint_directory == "/fsx/mine"


def test_trials_of_a_study_have_one_place_and_those_that_have_ended_leave_it(
    stored_api: Api,
) -> None:
    trial = replace(SPEC, name="sweep-1", study="sweep")
    _, node = joined(stored_api, trial)
    _, other = joined(stored_api, replace(trial, name="sweep-2"))
    assert node.assignment().grant == other.assignment().grant
    objects = Objects(cast(str, node.assignment().depot), storage(stored_api).jobs._access)
    kept = "trial-0-20260101T000000000000"
    for name in (f"{kept}.checkpoint", f"{TRIAL}.checkpoint", f"{TRIAL}/step-3/rest.pt", "other"):
        objects.put(name, b"state")
    ours = StudyClient(stored_api.url, TOKEN, "sweep")
    assert ours.remove_checkpoints((TRIAL, "trial-7-20260101T000000000000")) == 1
    assert [found.name for found in objects.listed()] == ["other", f"{kept}.checkpoint"]


def test_no_name_of_a_study_means_more_than_itself(stored_api: Api) -> None:
    names = ("sweep", "*", "a/../../b", "job", "\N{SNOWMAN}", "${aws:userid}", "x" * 200)
    owners = set()
    for number, name in enumerate(names):
        trial = replace(SPEC, name=f"trial-{number}", study=name)
        owners.add(stored.file_owner(stored_api.world.store.jobs.add(trial, 1.0)))
    assert len(owners) == len(names)
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")
    assert all(set(owner) <= plain and owner.startswith("study.") for owner in owners)


def test_a_log_is_read_from_its_parts_as_they_come(stored_api: Api) -> None:
    held, _ = joined(stored_api)
    jobs = storage(stored_api).jobs

    def put(offset: int, text: str, instance: str = held.id) -> None:
        jobs.put(f"job/logs/job/{instance}/{offset:015d}", text.encode())

    assert stored_api.client.logs("job", {}) == ()
    put(0, "one\n")
    put(4, "two\n")
    put(0, "other\n", "job-9-1")
    assert stored_api.client.logs("job", {}) == (), "it was looked for just now"
    stored_api.world.clock.advance(2.0)
    mine, other = stored_api.client.logs("job", {})
    assert (mine.text, mine.next_offset, other.text) == ("one\ntwo\n", 8, "other\n")
    put(8, "three\n")
    stored_api.world.clock.advance(2.0)
    (more,) = stored_api.client.logs("job", {held.id: 8, "job-9-1": 6})
    assert (more.text, more.next_offset) == ("three\n", 14)


def test_a_copy_of_a_log_that_made_room_is_not_fetched_again(
    stored_api: Api, tmp_path: Path
) -> None:
    joined(stored_api)
    world, jobs = stored_api.world, storage(stored_api).jobs
    limit = stored_limit(world.store, world.clock, 3000)
    logs = StoredLogs(tmp_path / "copies", jobs, world.store.jobs.get, world.clock, limit)
    for instance in ("job-7-1", "job-8-1", "job-9-1"):
        for part in range(2):
            jobs.put(f"job/logs/job/{instance}/{part * 600:015d}", instance[4:5].encode() * 600)
    first = {part.instance: part.text for part in logs.read("job", {})}
    assert first["job-7-1"].startswith("castor: the 1200 bytes of this log were dropped")
    assert first["job-9-1"] == "9" * 1200
    world.clock.advance(2.0)
    assert {part.instance: part.text for part in logs.read("job", {})} == first
    events = [
        event.text for event in world.store.events.latest("job") if event.kind == LOGS_DROPPED
    ]
    assert len(events) == 1 and "job-7-1" in events[0]


def test_what_is_known_of_a_log_is_shown_while_storage_is_away(
    stored_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, _ = joined(stored_api)
    storage(stored_api).jobs.put(f"job/logs/job/{held.id}/{0:015d}", b"one\n")
    assert [part.text for part in stored_api.client.logs("job", {})] == ["one\n"]

    def away(self: Objects, prefix: str = "") -> list[str]:
        raise Unavailable("away")

    monkeypatch.setattr(Objects, "folders", away)
    stored_api.world.clock.advance(2.0)
    assert [part.text for part in stored_api.client.logs("job", {})] == ["one\n"]
