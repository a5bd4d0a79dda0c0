"""Directories that several jobs can reach: none begins with the checkpoints of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.domain.checkpoint import MANIFEST, RECORD, name_of
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects, always
from autoscaler.training.state.claim import claim, claim_depot
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints

OURS, THEIRS = "digits.2#aa", "words#aa"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "shared" / "checkpoints"


def test_a_new_directory_becomes_the_jobs_and_stays_its_own(directory: Path) -> None:
    claim(directory, OURS, None)
    (directory / name_of(10)).mkdir()
    claim(directory, OURS, None)
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def test_another_job_is_refused_by_name_with_the_way_out(directory: Path) -> None:
    claim(directory, THEIRS, None)
    with pytest.raises(CheckpointError, match="has the checkpoints of the job words") as refusal:
        claim(directory, OURS, None)
    for way_out in ("choose another", "castor resume words", "adopt: words"):
        assert way_out in str(refusal.value)


def test_a_job_of_that_id_in_another_deployment_is_refused(directory: Path) -> None:
    claim(directory, "digits.2#bb", None)
    with pytest.raises(CheckpointError, match=r"digits\.2 of another deployment"):
        claim(directory, OURS, None)


@pytest.mark.parametrize("adopts", ["digits", "digits.3"])
def test_a_job_takes_over_what_it_names_and_the_other_is_refused_afterwards(
    directory: Path, adopts: str
) -> None:
    claim(directory, "digits.3#aa", None)
    with pytest.raises(CheckpointError):
        claim(directory, OURS, "digits.4")
    claim(directory, OURS, adopts)
    claim(directory, OURS, None)
    with pytest.raises(CheckpointError, match=r"of the job digits\.2"):
        claim(directory, "digits.3#aa", None)


def test_checkpoints_that_nobody_owns_are_taken_over_on_request_alone(directory: Path) -> None:
    (directory / name_of(10)).mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"without a record of .*adopt: digits"):
        claim(directory, OURS, None)
    assert not (directory / RECORD).exists()
    claim(directory, OURS, "digits")
    claim(directory, OURS, None)


def test_a_record_that_can_not_be_read_is_no_leave(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / RECORD).write_text("no json")
    with pytest.raises(CheckpointError, match="can't be read"):
        claim(directory, OURS, "digits")


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    place = f"file://{tmp_path}/bucket/jobs/digits/checkpoints"
    return Objects(place, always(StorageGrant(place)))


def test_a_checkpoint_store_of_an_earlier_deployment_is_not_adopted(objects: Objects) -> None:
    remote = RemoteCheckpoints(objects)
    claim_depot(remote, "digits#old", None)
    objects.put(f"{name_of(10)}/{MANIFEST}", b"{}")
    claim_depot(remote, "digits#old", None)
    with pytest.raises(CheckpointError, match="submit the job under another name"):
        claim_depot(remote, "digits#new", None)
    claim_depot(remote, "digits#new", "digits")  # the job has saved, and the key was lost
    claim_depot(remote, "digits#new", None)


def test_checkpoints_without_a_record_are_the_jobs_if_it_has_saved(
    objects: Objects,
) -> None:
    objects.put(f"{name_of(10)}/{MANIFEST}", b"{}")
    with pytest.raises(CheckpointError, match="had this place before"):
        claim_depot(RemoteCheckpoints(objects), "digits#new", None)
    assert not objects.exists(RECORD)
    claim_depot(RemoteCheckpoints(objects), "digits#new", "digits")
    claim_depot(RemoteCheckpoints(objects), "digits#new", None)
