"""Checkpoints of models that are sharded over several ranks, each in its own process."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock
from autoscaler.domain.checkpoint import name_of
from autoscaler.domain.errors import PermissionDenied
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects, always
from autoscaler.training import opening, session
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.gradients.parts import local_part
from autoscaler.training.state import checkpoint_writing
from autoscaler.training.state.checkpoint_part import CheckpointPart
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints
from tests.training.ranks import on_ranks
from tests.training.sharded import (
    checkpoints_of,
    load,
    message_of,
    parts_of,
    save,
    state_of,
    train,
    whole,
    whole_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STEPS = 3
PAGE = Path(__file__).parents[2] / "docs" / "outputs.md"


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """The state that one rank has after the steps."""
    state = state_of("plain")
    train(state, STEPS)
    return {**whole(state), "step": STEPS}


def assert_equal(loaded: list[dict[str, Any]], trained: dict[str, Any]) -> None:
    """Check that all ranks have the trained state, up to the rounding of sums over ranks."""
    for of_rank in loaded:
        torch.testing.assert_close(of_rank, trained, rtol=0, atol=1e-14)


def test_a_checkpoint_of_two_copies_on_two_ranks_each_is_read_on_any_ranks(
    tmp_path: Path, trained: dict[str, Any]
) -> None:
    on_ranks(4, save, tmp_path, "2x2", STEPS)
    (path,) = tmp_path.iterdir()
    parts = [path.name for path in path.glob("*.distcp")]
    assert sorted(parts) == ["__0_0.distcp", "__1_0.distcp"], "one copy is written"
    for layout, ranks in (("3", 3), ("2x2", 4), ("1", 1)):
        assert_equal(on_ranks(ranks, load, tmp_path, layout), trained)
    assert_equal([load(None, tmp_path, "plain")], trained)


def test_a_plain_checkpoint_is_read_in_shards(tmp_path: Path, trained: dict[str, Any]) -> None:
    save(None, tmp_path, "plain", STEPS)
    assert_equal(on_ranks(2, load, tmp_path, "2"), trained)


def _load_without_castor(ranks: InstanceRanks, directory: Path, layout: str) -> dict[str, Any]:
    """Run the code of docs/outputs.md that loads a checkpoint into a sharded model."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "dcp.load" in block)
    (checkpoint,) = directory.iterdir()
    parts: dict[str, Any] = {**parts_of(layout), "checkpoint": checkpoint}
    exec(code, parts)
    return whole_of(parts["model"], parts["optimizer"])


def test_pytorch_alone_reads_the_shards_that_castor_wrote(
    tmp_path: Path, trained: dict[str, Any]
) -> None:
    on_ranks(2, save, tmp_path, "2", STEPS)
    expected = {name: trained[name] for name in ("model", "optimizer")}
    assert_equal(on_ranks(3, _load_without_castor, tmp_path, "3"), expected)


def _session(
    ranks: InstanceRanks | None, directory: Path, layout: str, epochs: int
) -> tuple[int, dict[str, Any]]:
    """Train in a session that saves after each round; return its first step and last weights."""
    generator = torch.Generator().manual_seed(1)
    dataset = TensorDataset(torch.randn(60, 4, generator=generator, dtype=torch.float64))
    parts, steps = parts_of(layout), []
    with (
        mock.patch.object(opening, "_CHECKPOINT_SECONDS_ALONE", 0.0),
        session(
            dataset=dataset, batch_size=12, checkpoint_directory=str(directory), **parts
        ) as job,
    ):
        for (inputs,) in job.batches(epochs=epochs):
            steps.append(job.step(job.model(inputs).square().mean()).number)
    weights = get_model_state_dict(parts["model"], options=StateDictOptions(full_state_dict=True))
    return steps[0], weights


def test_sessions_of_other_sizes_go_on_from_where_the_last_one_ended(tmp_path: Path) -> None:
    _, expected = _session(None, tmp_path / "plain", "plain", 3)
    on_ranks(2, _session, tmp_path / "sharded", "2", 1)
    for first, _ in on_ranks(3, _session, tmp_path / "sharded", "3", 2):
        assert first == 6, "the first epoch has 5 steps"
    first, weights = _session(None, tmp_path / "sharded", "plain", 3)
    assert first == 11
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)


def _faults(ranks: InstanceRanks, root: Path) -> dict[str, Any]:
    """Return what this rank learns of a fault of rank 1, or of files, in a world of two."""
    learnt: dict[str, Any] = {}
    state, rank = state_of("2"), ranks.rank
    checkpoints = checkpoints_of(ranks, root / "disk", "2")
    train(state, 1)
    state.save(checkpoints, at_once=True)
    train(state, 1)

    def full(part: CheckpointPart, directory: Path) -> object:
        if rank == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(part, directory)

    write = CheckpointPart.write
    with mock.patch.object(CheckpointPart, "write", full):
        state.save(checkpoints, at_once=False)
        checkpoints.wait()
    learnt["full"] = checkpoints.status.error
    ranks.barrier()
    learnt["files"] = sorted(path.name for path in (root / "disk").iterdir())
    state.save(checkpoints, at_once=True)
    learnt["after"] = checkpoints.status.step, checkpoints.status.error
    ranks.barrier()
    if rank == 0:
        damaged = root / "disk" / name_of(2) / "__1_0.distcp"
        content = bytearray(damaged.read_bytes())
        content[100] ^= 1
        damaged.write_bytes(content)
    ranks.barrier()
    restored = state_of("2")
    again = checkpoints_of(ranks, root / "disk", "2")
    restored.restore_newest(again)
    learnt["fallback"] = restored.counters.step, again.status.step
    learnt["other shapes"] = message_of(
        lambda: state_of("2", width=8).restore_newest(checkpoints_of(ranks, root / "disk", "2"))
    )
    with torch.no_grad():
        for parameter in state._model.parameters():
            if rank == 1:
                local_part(parameter).fill_(float("nan"))
    learnt["not finite"] = message_of(lambda: state.save(checkpoints, at_once=True))
    own = checkpoints_of(ranks, root / f"disk of {rank}", "2")
    learnt["no shared disk"] = message_of(own.newest)
    return learnt


def test_a_fault_of_one_rank_is_one_of_all_ranks(tmp_path: Path) -> None:
    first, second = on_ranks(2, _faults, tmp_path)
    for learnt in (first, second):
        assert "is not the same directory on rank 0 and rank 1" in learnt.pop("no shared disk")
    assert first == second
    disk, steps = tmp_path / "disk", [name_of(1), name_of(2)]
    assert first["full"] == (
        f"no checkpoint at step 2 in {disk}: rank 1: No space left on device; "
        "the newest whole one is 1"
    )
    assert first["files"] == steps[:1], "nothing is left of the failed one"
    assert first["after"] == (2, None)
    assert first["fallback"] == (1, 1)
    assert first["other shapes"] == (
        f"CheckpointError: {disk / steps[0]} does not go with this model: the model's 0.weight is "
        "7x4 in the checkpoint and 8x4 in this script, and 4 more differ: resume with the script "
        "that wrote it, or name another checkpoint directory"
    )
    assert "DivergedError: 0.bias and 5 more is not finite at step 2" in first["not finite"]


def _death(ranks: InstanceRanks, directory: Path, dying: int) -> tuple[str | None, int | None]:
    """Save two checkpoints, in the second of which a rank dies; return the last status."""
    state, checkpoints = state_of("3"), checkpoints_of(ranks, directory, "3")
    train(state, 1)
    state.save(checkpoints, at_once=True)
    train(state, 1)
    owner, name = (checkpoint_writing, "_seal") if dying == 0 else (CheckpointPart, "write")
    if ranks.rank == dying:
        mock.patch.object(owner, name, lambda *arguments: os._exit(9)).start()
    state.save(checkpoints, at_once=False)
    checkpoints.wait()
    return checkpoints.status.error, checkpoints.status.step


@pytest.mark.parametrize("dying", [0, 2])
def test_a_rank_that_is_lost_leaves_no_half_checkpoint(tmp_path: Path, dying: int) -> None:
    answers = on_ranks(3, _death, tmp_path, dying, lost=frozenset({dying}))
    survivors = [answer for rank, answer in enumerate(answers) if rank != dying]
    for error, step in survivors:
        assert error is not None and "a rank is lost" in error
        assert step == 1
    names = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert names == [name_of(1)]
    loaded = on_ranks(2, load, tmp_path, "2")
    assert {of_rank["step"] for of_rank in loaded} == {1}


@pytest.fixture(params=["directory", "S3"])
def grant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageGrant]:
    """Yield the grant of an empty place."""
    if request.param == "directory":
        yield StorageGrant(f"file://{tmp_path / 'store'}")
        return
    pytest.importorskip("boto3", reason="the extra aws is not installed")
    pytest.importorskip("moto", reason="moto is not installed")
    from tests.fakes.aws.bucket import Bucket
    from tests.fakes.aws.server import FakeAws

    server = FakeAws(SystemClock())
    yield Bucket(server).grant("jobs/job/checkpoints")
    server.close()


def _objects(grant: StorageGrant) -> Objects:
    return Objects(grant.place, always(grant))


def _remote(ranks: InstanceRanks, root: Path, grant: StorageGrant) -> dict[str, Any]:
    """Save to a store, from ranks with a disk of their own each."""
    learnt: dict[str, Any] = {}
    remote = RemoteCheckpoints(_objects(grant))
    state = state_of("2")
    checkpoints = checkpoints_of(ranks, root / f"disk of {ranks.rank}", "2", remote)
    assert checkpoints.newest() is None
    train(state, STEPS)
    upload = RemoteCheckpoints.upload

    def refused(remote: RemoteCheckpoints, path: Path, names: list[str]) -> object:
        if ranks.rank == 1:
            raise PermissionDenied("s3://bucket: the credential does not allow it")
        return upload(remote, path, names)

    with mock.patch.object(RemoteCheckpoints, "upload", refused):
        state.save(checkpoints, at_once=True)
    learnt["refused"] = checkpoints.status.error
    learnt["refused names"] = remote.names()
    ranks.barrier()
    with mock.patch.object(CheckpointPart, "write", side_effect=AssertionError):
        state.save(checkpoints, at_once=True)  # what is on the disks is only uploaded
    learnt["saved"] = checkpoints.status.error, checkpoints.status.step
    learnt["bytes"] = checkpoints.status.bytes
    learnt["sent"] = remote.transferred.sent_bytes
    checkpoints.close()
    return learnt


def _remote_load(
    ranks: InstanceRanks, root: Path, grant: StorageGrant, disks: str, layout: str
) -> dict[str, Any]:
    """Load from the store onto disks of one rank each."""
    remote, directory = RemoteCheckpoints(_objects(grant)), root / f"{disks} {ranks.rank}"
    state, checkpoints = state_of(layout), checkpoints_of(ranks, directory, layout, remote)
    assert state.restore_newest(checkpoints)
    (path,) = directory.iterdir()
    files = {file.name: file.stat().st_size for file in path.iterdir()}
    checkpoints.close()
    return {**whole(state), "step": state.counters.step, "files": files}


def test_every_rank_uploads_its_part_and_downloads_what_it_reads(
    tmp_path: Path, grant: StorageGrant, trained: dict[str, Any]
) -> None:
    first, second = on_ranks(2, _remote, tmp_path, grant)
    assert first["refused"] == second["refused"]
    assert "rank 1: s3://bucket: the credential does not allow it" in first["refused"]
    assert first["refused names"] == [], "a checkpoint that is not whole is not seen"
    assert first["saved"] == second["saved"] == (None, STEPS)
    assert first["bytes"] == second["bytes"]
    listed = _objects(grant).listed(name_of(STEPS))
    stored = {listed_object.name.split("/")[-1]: listed_object.bytes for listed_object in listed}
    assert first["sent"] >= sum(stored.values()), "the leader counts what all ranks send"
    loaded = on_ranks(2, _remote_load, tmp_path, grant, "other disk of", "2")
    files = [of_rank.pop("files") for of_rank in loaded]
    assert_equal(loaded, trained)
    assert "__1_0.distcp" not in files[0], "rank 0 needs only its own part"
    assert "__1_0.distcp" in files[1]
    loaded = on_ranks(1, _remote_load, tmp_path, grant, "disk of the one", "plain")
    assert loaded[0].pop("files").keys() == stored.keys()
    assert_equal(loaded, trained)
