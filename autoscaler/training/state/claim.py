"""Record of whose checkpoints a shared directory has, so that no job begins with another's."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from autoscaler.domain.checkpoint import RECORD, step_of
from autoscaler.domain.errors import CheckpointError, ProviderError
from autoscaler.training.state.depot import Depot


def claim(directory: Path, owner: str, adopts: str | None) -> None:
    """Write down that the checkpoints in `directory` are those of `owner`, unless it says so.

    Args:
        directory: made if it is missing.
        owner: the id of the job's first run, and after a ``#`` what tells deployments apart.
        adopts: the job, by name or id, whose checkpoints may be taken over. Those that no record
            names may be, too, if there is one.

    Raises:
        CheckpointError: the checkpoints are another job's, or the directory can't be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        holder = _recorded(directory)
        if holder == owner:
            return
        if holder is None and (adopts is not None or not _has_checkpoints(directory)):
            _record_first(directory, owner)
            holder = _recorded(directory)
        elif holder is not None and adopts in _names(holder):
            _record(directory, owner)
            return
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{directory} can't be used for checkpoints: {error}: choose another "
            "checkpoint.directory, or let the job write there"
        ) from error
    if holder != owner:
        raise CheckpointError(_refusal(directory, owner, holder))


def claim_depot(depot: Depot, owner: str, adopts: str | None) -> None:
    """Write down in the depot that its checkpoints are those of `owner`; see `claim`.

    Each job has a depot of its own, so that another's checkpoints there are of a deployment that
    had the same place before.

    Raises:
        CheckpointError: the checkpoints are another job's, or the depot can't be used.
    """
    try:
        record = depot.record()
        holder = None if record is None else _owner_in(record)
        if holder == owner:
            return
        is_free = holder is None and not depot.names()
        if is_free or (adopts is not None and (holder is None or adopts in _names(holder))):
            depot.set_record(json.dumps({"job": owner}).encode())
            return
    except (ProviderError, ValueError) as error:
        raise CheckpointError(f"{depot.place} can't be used for checkpoints: {error}") from error
    raise CheckpointError(
        f"{depot.place} has checkpoints of a deployment that had this place before: submit the "
        "job under another name, or remove them to start from the beginning"
    )


def _refusal(directory: Path, owner: str, holder: str | None) -> str:
    if holder is None:
        return (
            f"{directory} has checkpoints of which nothing says whose they are: choose another "
            "checkpoint.directory, or take them over with checkpoint: {directory: "
            f"{directory}, adopt: {_name(owner)}}}"
        )
    elsewhere = " of another deployment" if _id(holder) == _id(owner) else ""
    return (
        f"{directory} has the checkpoints of the job {_id(holder)}{elsewhere}: choose another "
        f"checkpoint.directory, go on with that job by castor resume {_id(holder)}, or take them "
        f"over with checkpoint: {{directory: {directory}, adopt: {_name(holder)}}}"
    )


def _recorded(directory: Path) -> str | None:
    """Return the owner that the record names; None if there is no record.

    Raises:
        ValueError: the record can't be read.
    """
    try:
        return _owner_in((directory / RECORD).read_bytes())
    except FileNotFoundError:
        return None


def _owner_in(record: bytes) -> str:
    try:
        return str(json.loads(record)["job"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{RECORD} can't be read ({error})") from error


def _record_first(directory: Path, owner: str) -> None:
    """Write the record, unless another job does so first."""
    partial = _partial(directory, owner)
    with suppress(FileExistsError):
        os.link(partial, directory / RECORD)
    partial.unlink()


def _record(directory: Path, owner: str) -> None:
    _partial(directory, owner).replace(directory / RECORD)


def _partial(directory: Path, owner: str) -> Path:
    partial = directory / f".{RECORD}.{uuid4().hex}"
    partial.write_text(json.dumps({"job": owner}))
    return partial


def _has_checkpoints(directory: Path) -> bool:
    return any(step_of(path.name.split(".")[0]) is not None for path in directory.iterdir())


def _id(owner: str) -> str:
    return owner.partition("#")[0]


def _names(owner: str) -> tuple[str, str]:
    """Return what a job file may call the owner: its id, and its name."""
    return _id(owner), _name(owner)


def _name(owner: str) -> str:
    return _id(owner).partition(".")[0]
