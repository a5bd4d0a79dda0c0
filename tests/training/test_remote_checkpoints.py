"""Checkpoints that count once they are in storage, and what becomes of them in bad weather."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from autoscaler.clock import SystemClock
from autoscaler.domain.checkpoint import name_of
from autoscaler.domain.errors import CheckpointError
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.checkpoint_part import CheckpointPart
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.fakes.aws.bucket import Bucket
from tests.fakes.aws.faults import Fault, When
from tests.fakes.aws.server import FakeAws

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

FOLDER = "jobs/job/checkpoints"
FILES = ("__0_0.distcp", ".metadata", "rest.pt")


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeAws]:
    server = FakeAws(SystemClock())
    yield server
    server.close()


@pytest.fixture
def bucket(fake: FakeAws) -> Bucket:
    return Bucket(fake)


class Instance:
    """One instance of the job, with a disk of its own."""

    def __init__(self, disk: Path, bucket: Bucket) -> None:
        self.disk = disk
        remote = RemoteCheckpoints(bucket.objects(FOLDER))
        self.checkpoints = Checkpoints(disk, kept=2, clock=SystemClock(), remote=remote)
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.state = TrainingState(self.model, optimizer, None, Counters(batch_total=8))

    def save(self, step: int) -> None:
        with torch.no_grad():
            self.model.weight.fill_(step)
        self.state.counters.step = step
        self.state.save(self.checkpoints, at_once=True)

    def restored(self) -> int | None:
        """The step that it goes on from; its weights are those of that step."""
        path = self.checkpoints.newest()
        if path is None:
            return None
        self.state.restore(self.checkpoints, path)
        assert torch.equal(self.model.weight, torch.full((3, 4), float(self.state.counters.step)))
        return self.state.counters.step


@pytest.fixture
def first(tmp_path: Path, bucket: Bucket) -> Instance:
    return Instance(tmp_path / "first", bucket)


@pytest.fixture
def second(tmp_path: Path, bucket: Bucket) -> Instance:
    return Instance(tmp_path / "second", bucket)


def manifests(bucket: Bucket) -> list[str]:
    return [key.split("/")[3] for key in bucket.contents() if key.endswith("/manifest.json")]


def test_another_instance_goes_on_from_what_one_has_saved(
    first: Instance, second: Instance, bucket: Bucket
) -> None:
    assert second.restored() is None
    for step in (1, 2, 3):
        first.save(step)
    assert first.checkpoints.status.step == 3
    assert first.checkpoints.status.error is None
    assert second.restored() == 3
    assert second.checkpoints.status.step == 3
    kept = [name_of(2), name_of(3)]
    assert manifests(bucket) == kept, "pruned in storage"
    assert sorted(path.name for path in first.disk.iterdir()) == kept, "and on the disk"


def test_what_is_on_the_disk_as_it_is_in_storage_is_not_fetched(
    first: Instance, bucket: Bucket
) -> None:
    first.save(1)
    before = bucket.account.calls["GetObject"]
    assert first.restored() == 1
    assert bucket.account.calls["GetObject"] - before == 1, "the manifest alone"
    torn = first.disk / name_of(1) / "rest.pt"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert first.restored() == 1, "and what has been damaged here is fetched"


def test_a_step_that_another_instance_has_written_otherwise_is_fetched(
    first: Instance, second: Instance, bucket: Bucket
) -> None:
    bucket.account.faults.add(Fault("PutObject", times=None))
    first.save(7)
    bucket.account.faults.clear()
    second.save(6)
    second.save(7)
    with torch.no_grad():
        first.model.weight.fill_(0.0)
    assert first.checkpoints.newest() is not None
    manifest = (first.disk / name_of(7) / "manifest.json").read_bytes()
    assert manifest == (second.disk / name_of(7) / "manifest.json").read_bytes()


def test_a_step_that_is_saved_again_with_other_values_is_replaced(
    first: Instance, second: Instance, bucket: Bucket
) -> None:
    first.save(6)
    first.save(7)
    first.state.counters.progress_examples += 1.0
    first.save(7)
    assert manifests(bucket) == [name_of(6), name_of(7)]
    assert second.restored() == 7
    assert second.state.counters.progress_examples == first.state.counters.progress_examples


def test_while_storage_is_away_nothing_counts_and_then_it_does(
    first: Instance, second: Instance, bucket: Bucket
) -> None:
    first.save(1)
    bucket.account.faults.add(Fault("PutObject", When.LOST_BEFORE, times=None))
    first.save(2)
    status = first.checkpoints.status
    assert status.step == 1
    assert status.error is not None and "\n" not in status.error
    assert f"no checkpoint at step 2 in s3://{bucket.name}/{FOLDER}: " in status.error
    assert status.error.endswith("the newest whole one is 1")
    assert second.restored() == 1
    bucket.account.faults.clear()
    first.save(2)
    assert (first.checkpoints.status.step, first.checkpoints.status.error) == (2, None)
    assert second.restored() == 2


def test_what_is_on_the_disk_is_not_written_again_for_storage(
    first: Instance, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.account.faults.add(Fault("PutObject", When.LOST_BEFORE, times=None))
    first.save(1)
    bucket.account.faults.clear()

    def write(*arguments: object, **options: object) -> None:
        raise AssertionError("written again")

    monkeypatch.setattr(CheckpointPart, "write", write)
    first.save(1)
    status = first.checkpoints.status
    assert (status.step, status.error) == (1, None)
    assert status.bytes is not None and status.bytes > 0


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_checkpoint_that_is_half_written_is_not_seen(
    first: Instance, second: Instance, bucket: Bucket, written: int
) -> None:
    first.save(1)
    name = name_of(2)
    for file in FILES[:written]:
        bucket.put(f"{FOLDER}/{name}/{file}", b"half")
    assert second.restored() == 1
    second.save(3)
    assert not [key for key in bucket.contents() if name in key], "what was left of it is removed"


@pytest.mark.parametrize("damage", ["flipped", "short", "missing", "manifest"])
def test_a_corrupt_checkpoint_is_set_aside_and_the_one_before_is_read(
    first: Instance, second: Instance, bucket: Bucket, damage: str
) -> None:
    first.save(1)
    first.save(2)
    name = "manifest.json" if damage == "manifest" else "rest.pt"
    key = f"{FOLDER}/{name_of(2)}/{name}"
    content = bucket.s3.get_object(Bucket=bucket.name, Key=key)["Body"].read()
    if damage == "missing":
        bucket.s3.delete_object(Bucket=bucket.name, Key=key)
    else:
        changed = content[:-3] if damage != "flipped" else bytes([content[0] ^ 1]) + content[1:]
        bucket.put(key, changed)
    assert second.restored() == 1
    assert manifests(bucket) == [name_of(1)]
    aside = f"{FOLDER}/{name_of(2)}/manifest.json.corrupt"
    assert aside in bucket.contents(), "nothing is deleted"
    second.save(3)
    second.save(4)
    assert aside in bucket.contents()
    assert first.restored() == 4


def test_where_none_is_whole_nobody_begins_anew(
    first: Instance, second: Instance, bucket: Bucket
) -> None:
    first.save(1)
    bucket.put(f"{FOLDER}/{name_of(1)}/rest.pt", b"damaged")
    with pytest.raises(CheckpointError, match=f"no checkpoint in s3://{bucket.name}/.* is whole"):
        second.restored()


@pytest.mark.parametrize("action", ["ListObjectsV2", "GetObject", "HeadObject"])
def test_a_start_does_not_take_silence_for_nothing(
    first: Instance, second: Instance, bucket: Bucket, action: str
) -> None:
    first.save(1)
    bucket.account.faults.add(Fault(action, code="SlowDown", status=503, times=None))
    with pytest.raises(CheckpointError, match=r"can't be read .* left as they are") as told:
        second.restored()
    assert "\n" not in str(told.value)
    bucket.account.faults.clear()
    assert second.restored() == 1


def test_one_that_is_pruned_while_it_is_fetched_is_passed_over(
    first: Instance, second: Instance, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.save(1)
    download = RemoteCheckpoints.download

    def outdated(self: RemoteCheckpoints, name: str, file: str, target: Path) -> None:
        if (name, file) == (name_of(1), FILES[0]):
            for step in (2, 3):
                first.save(step)
        download(self, name, file, target)

    monkeypatch.setattr(RemoteCheckpoints, "download", outdated)
    assert second.restored() == 3


def test_what_can_not_be_pruned_now_fails_no_save(first: Instance, bucket: Bucket) -> None:
    first.save(1)
    first.save(2)
    bucket.account.faults.add(Fault("DeleteObjects", times=None))
    first.save(3)
    assert (first.checkpoints.status.step, first.checkpoints.status.error) == (3, None)
    assert len(manifests(bucket)) == 3
    bucket.account.faults.clear()
    first.save(4)
    assert manifests(bucket) == [name_of(3), name_of(4)]


def test_a_disk_without_room_is_no_corrupt_checkpoint(
    first: Instance, second: Instance, bucket: Bucket
) -> None:
    first.save(1)
    second.disk.parent.mkdir(exist_ok=True)
    second.disk.write_text("no directory")
    with pytest.raises(CheckpointError, match=r"can't be read \(Not a directory\)"):
        second.restored()
    assert manifests(bucket) == [name_of(1)]
    second.disk.unlink()
    assert second.restored() == 1


def test_a_save_waits_for_its_upload(first: Instance, bucket: Bucket) -> None:
    bucket.account.faults.add(Fault("PutObject", When.LOST_AFTER, delay_seconds=0.2))
    first.state.counters.step = 5
    first.state.save(first.checkpoints, at_once=False)
    assert first.checkpoints.is_writing
    assert first.checkpoints.status.step is None
    first.checkpoints.wait()
    assert first.checkpoints.status.step == 5
    shutil.rmtree(first.disk)
    assert first.checkpoints.newest() is not None
