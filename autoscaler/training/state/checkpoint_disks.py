"""Disks of the ranks of a session: which ranks see the same checkpoint directory."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final
from uuid import uuid4

from autoscaler.domain.errors import CheckpointError
from autoscaler.training.state.joint_work import JointWork, WorkError

_ALONE: Final = [0]


def disk_leaders(directory: Path, work: JointWork) -> list[int]:
    """Return for each rank the first rank that sees the same directory.

    Raises:
        CheckpointError: a rank can't use its directory.
    """
    if work.ranks.ranks == 1:
        return _ALONE
    rank = work.ranks.rank
    session = work.on_leader(lambda: uuid4().hex)
    own_mark = directory / f".rank-{session}-{rank}"

    def mark() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        own_mark.touch()

    def first_mark() -> int:
        marks = directory.glob(f".rank-{session}-*")
        return min(int(path.name.rpartition("-")[2]) for path in marks)

    try:
        work.on_all(mark)
        return work.on_all(first_mark)
    except WorkError as error:
        raise CheckpointError(
            f"{directory} can't be used for checkpoints ({error}): choose another "
            "checkpoint.directory, or let the job write there"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            own_mark.unlink()


def require_one_disk(directory: Path, leaders: list[int]) -> None:
    """Check that all ranks see the same directory.

    Raises:
        CheckpointError: some ranks see another one; the message names the first of them.
    """
    others = [rank for rank, leader in enumerate(leaders) if leader != 0]
    if others:
        raise CheckpointError(
            f"{directory} is not the same directory on rank 0 and rank {others[0]}, whose "
            "instances share no disk: set checkpoint.directory to one that all instances of the "
            "gang mount, or give the deployment a storage"
        )
