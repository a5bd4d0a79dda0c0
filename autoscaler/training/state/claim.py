"""Ownership records of checkpoint directories, so that no job starts from another job's state."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from autoscaler.domain.checkpoint import RECORD, step_of
from autoscaler.domain.errors import CheckpointError, ProviderError
from autoscaler.domain.text import parse_json
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints


def claim(directory: Path, owner: str, adopts: str | None) -> None:
    """Record `owner` as the owner of the checkpoints in `directory`.

    Args:
        directory: checkpoint directory; created if missing.
        owner: id of the job's first run, then ``#`` and an identifier of the deployment.
        adopts: name or id of a job whose checkpoints may be taken over. If given, checkpoints
            without a record may be taken over, too.

    Raises:
        CheckpointError: the checkpoints are another job's, or the directory can't be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        holder = _recorded_owner(directory)
        if holder == owner:
            return
        if holder is None and (adopts is not None or not _has_checkpoints(directory)):
            _record_first(directory, owner)
            holder = _recorded_owner(directory)
        elif holder is not None and adopts in _adoptable_names(holder):
            _record(directory, owner)
            return
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{directory} can't be used for checkpoints: {error}: choose another "
            "checkpoint.directory, or let the job write there"
        ) from error
    if holder != owner:
        raise CheckpointError(_refusal(directory, owner, holder))


def claim_depot(depot: RemoteCheckpoints, owner: str, adopts: str | None) -> None:
    """Record `owner` as the owner of the checkpoints in the remote store; see `claim`.

    Each job has its own remote location. Checkpoints of another owner are therefore from an
    earlier deployment with the same location.

    Raises:
        CheckpointError: the checkpoints are another job's, or the remote store can't be used.
    """
    try:
        record = depot.record()
        holder = None if record is None else _owner_in(record)
        if holder == owner:
            return
        is_free = holder is None and not depot.names()
        if is_free or (
            adopts is not None and (holder is None or adopts in _adoptable_names(holder))
        ):
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
            f"{directory} has checkpoints without a record of their job: choose another "
            "checkpoint.directory, or take them over with checkpoint: {directory: "
            f"{directory}, adopt: {_job_name(owner)}}}"
        )
    elsewhere = " of another deployment" if _id(holder) == _id(owner) else ""
    return (
        f"{directory} has the checkpoints of the job {_id(holder)}{elsewhere}: choose another "
        f"checkpoint.directory, go on with that job by castor resume {_id(holder)}, or take them "
        f"over with checkpoint: {{directory: {directory}, adopt: {_job_name(holder)}}}"
    )


def _recorded_owner(directory: Path) -> str | None:
    """Return the owner in the directory's record; None if there is no record.

    Raises:
        ValueError: the record can't be read.
    """
    try:
        return _owner_in((directory / RECORD).read_bytes())
    except FileNotFoundError:
        return None


def _owner_in(record: bytes) -> str:
    try:
        return str(parse_json(record)["job"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{RECORD} can't be read ({error})") from error


def _record_first(directory: Path, owner: str) -> None:
    """Write the record unless one exists; a concurrent writer may win."""
    partial = _write_partial(directory, owner)
    with suppress(FileExistsError):
        os.link(partial, directory / RECORD)
    partial.unlink()


def _record(directory: Path, owner: str) -> None:
    _write_partial(directory, owner).replace(directory / RECORD)


def _write_partial(directory: Path, owner: str) -> Path:
    partial = directory / f".{RECORD}.{uuid4().hex}"
    partial.write_text(json.dumps({"job": owner}))
    return partial


def _has_checkpoints(directory: Path) -> bool:
    return any(step_of(path.name.split(".")[0]) is not None for path in directory.iterdir())


def _id(owner: str) -> str:
    return owner.partition("#")[0]


def _adoptable_names(owner: str) -> tuple[str, str]:
    """Return the id and the name by which a job file may refer to the owner."""
    return _id(owner), _job_name(owner)


def _job_name(owner: str) -> str:
    return _id(owner).partition(".")[0]
