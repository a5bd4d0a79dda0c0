"""Checkpoints: written in the background, published atomically, verified when read.

The state is copied while training pauses. A thread then writes it by
torch.distributed.checkpoint; of a model that is sharded over ranks, each rank writes its part. A
checkpoint is a directory `step-N`. It appears by a rename, once the files of all ranks are on disk
and their SHA-256 digests are in the manifest. A checkpoint that does not match its manifest is set
aside, never deleted, and the previous one is read.

If the job has a remote checkpoint store, the directory is a local copy on each instance. Only
checkpoints in the store count: each rank uploads its files, and the leader the manifest at last.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as read_tensors

from autoscaler.clock import Clock
from autoscaler.domain.checkpoint import step_of
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.report import CheckpointStatus
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.state.checkpoint_files import REST, published
from autoscaler.training.state.checkpoint_part import CheckpointPart
from autoscaler.training.state.checkpoint_reading import CheckpointSearch, FilesRead
from autoscaler.training.state.checkpoint_writing import CheckpointWriter, Content
from autoscaler.training.state.host_copies import HostCopies
from autoscaler.training.state.joint_work import JointWork, WorkError
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints

_log = logging.getLogger(__name__)

_ABANDONED_SECONDS: Final = 86_400.0
_SAVE_TIMEOUT_SECONDS: Final = 30.0
_REMOTE_SAVE_TIMEOUT_SECONDS: Final = 900.0
# A rank that ends closes its connections. This limit is for one that hangs.
_LONGEST_WRITE: Final = timedelta(hours=6)

_Value = TypeVar("_Value")


class Checkpoints:
    """Checkpoints of one job in one directory, on one rank. Another thread writes them.

    Args:
        directory: directory of the checkpoints, or of their local copies.
        kept: number of checkpoints to keep.
        clock: clock for durations and retries.
        remote: remote store; None if the checkpoints in the directory count.
        ranks: ranks of the session, which all construct this object together; None for one.
        is_sharded: whether the model is sharded over the ranks. Each rank then writes a part, and
            all ranks call the same methods. Otherwise the leader alone saves.
        host_copies: maker of the copies that are written.
    """

    def __init__(
        self,
        directory: Path,
        kept: int,
        clock: Clock,
        remote: RemoteCheckpoints | None = None,
        *,
        ranks: InstanceRanks | None = None,
        is_sharded: bool = False,
        host_copies: HostCopies | None = None,
    ) -> None:
        self._directory = directory
        self._kept_count = kept
        self._clock = clock
        self._remote = remote
        self._readers = ranks or InstanceRanks()
        self._is_joint = is_sharded and self._readers.ranks > 1
        self._writers = InstanceRanks()
        if self._is_joint:
            # The thread's collectives have a group of their own, which training does not use.
            self._writers = InstanceRanks(_gloo_group())
        self._search = CheckpointSearch(directory, remote, JointWork(self._readers), clock)
        self._thread: threading.Thread | None = None
        self._status = CheckpointStatus()
        self._pause_seconds: float | None = None
        self._host_copies = host_copies or HostCopies()

    @property
    def place(self) -> str:
        """Location of the checkpoints that count: the remote store, or else the directory."""
        return str(self._directory) if self._remote is None else self._remote.place

    @property
    def patience_seconds(self) -> float:
        """Seconds to keep trying to save a job's last state; longer for a remote store."""
        return _SAVE_TIMEOUT_SECONDS if self._remote is None else _REMOTE_SAVE_TIMEOUT_SECONDS

    @property
    def status(self) -> CheckpointStatus:
        """Step of the newest whole checkpoint, and the error of any later attempt.

        Equal on all ranks that save, between saves.
        """
        return self._status

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_part(self) -> bool:
        """Whether this rank must take part when its replica saves."""
        return self._is_joint or self._readers.is_leader

    def gathered(self, value: _Value) -> list[_Value]:
        """Return the values of all ranks that save; all of them must call this together."""
        return self._readers.values(value) if self._is_joint else [value]

    def from_leader(self, value: _Value) -> _Value:
        """Return the leader's value; all ranks that save must call this together."""
        shared: _Value = self._readers.value_from_leader(value) if self._is_joint else value
        return shared

    def reserve(self, tensors: Mapping[str, Any]) -> None:
        """Prepare memory for copies of a device's tensors in the background."""
        self._host_copies.reserve(self._part(tensors).values)

    def save(
        self,
        step: int,
        tensors: Mapping[str, Any],
        rest: Mapping[str, Any],
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Copy the state and write it in the background; do nothing during another write.

        Args:
            step: number of committed steps.
            tensors: a tree for torch.distributed.checkpoint.
            rest: plain values.
            texts: contents of files for human readers, by file name.
        """
        if self.from_leader(self.is_writing):
            return
        self.wait()  # the leader's thread ends first
        began_seconds = self._clock.monotonic()
        part = self._part(tensors)
        part.values, plain = self._host_copies.copy((part.values, dict(rest)))
        self._pause_seconds = self._clock.monotonic() - began_seconds
        content, writer = Content(step, part, plain, texts or {}), self._writer()
        self._thread = threading.Thread(
            target=self._write, args=(writer, content), name="castor-checkpoint"
        )
        self._thread.start()

    def save_now(
        self,
        step: int,
        tensors: Mapping[str, Any],
        rest: Mapping[str, Any],
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Write the state and return once it is published or has failed: see `status`.

        A checkpoint of this step with the same `rest` is kept; one with another `rest` is
        replaced.
        """
        self.wait()
        content = Content(step, self._part(tensors), dict(rest), texts or {})
        self._write(self._writer(), content)

    def wait(self) -> None:
        """Wait until the background write has ended."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Wait until the background write has ended, and close the ranks' connections for it."""
        self.wait()
        self._writers.close()

    def newest(self, files_read: FilesRead | None = None) -> Path | None:
        """Return the newest checkpoint that matches its manifest; None if there is no checkpoint.

        Newer checkpoints that do not match are set aside. All ranks must call this together.

        Args:
            files_read: the files of tensors that this rank reads; None for all.

        Raises:
            CheckpointError: there are checkpoints but none is whole, or one can't be read.
        """
        return self._search.newest(files_read)

    def load(self, path: Path, tensors: dict[str, Any]) -> dict[str, Any]:
        """Read this rank's part of a checkpoint into the tree `tensors`.

        Returns:
            The plain values of the checkpoint.

        Raises:
            CheckpointError: the checkpoint does not fit this model.
        """
        try:
            read_tensors(tensors, checkpoint_id=path, no_dist=True)
            rest: dict[str, Any] = torch.load(path / REST, weights_only=True)
        except (CheckpointException, RuntimeError, KeyError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise CheckpointError(
                f"{path} does not go with this model ({reason}): "
                "use another checkpoint directory, or the script that wrote it"
            ) from error
        if self._status.step != step_of(path.name):
            self._status = CheckpointStatus(step=step_of(path.name))
        return rest

    def remove_abandoned(self) -> None:
        """Remove partial checkpoints that were last written over a day ago."""
        for path in self._directory.glob(".step-*.partial"):
            with contextlib.suppress(OSError):
                if self._clock.now() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path)

    def _part(self, tensors: Mapping[str, Any]) -> CheckpointPart:
        return CheckpointPart(dict(tensors), self._writers.rank)

    def _writer(self) -> CheckpointWriter:
        is_disk_leader = self._search.leads_disk() if self._is_joint else True
        work = JointWork(self._writers)
        return CheckpointWriter(self._directory, self._remote, work, is_disk_leader)

    def _write(self, writer: CheckpointWriter, content: Content) -> None:
        started_seconds = self._clock.monotonic()
        try:
            size_bytes = writer.write(content)
        except (WorkError, CheckpointError) as error:
            self._record_failure(content.step, str(error))
            return
        self._status = CheckpointStatus(
            step=content.step,
            seconds=self._clock.monotonic() - started_seconds,
            bytes=size_bytes,
            pause_seconds=self._pause_seconds,
        )
        self._prune(writer.is_disk_leader)

    def _record_failure(self, step: int, fault: str) -> None:
        text = (
            f"no checkpoint at step {step} in {self.place}: {fault}; "
            f"the newest whole one is {'none' if self._status.step is None else self._status.step}"
        )
        if self._writers.is_leader:
            _log.error(text)
        self._status = replace(self._status, error=text)

    def _prune(self, is_disk_leader: bool) -> None:
        if is_disk_leader:
            for path in sorted(published(self._directory), reverse=True)[self._kept_count :]:
                shutil.rmtree(path, ignore_errors=True)
        if self._remote is not None and self._writers.is_leader:
            self._remote.prune_if_possible(self._kept_count)


def _gloo_group() -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo", timeout=_LONGEST_WRITE)
    assert isinstance(group, dist.ProcessGroup)
    return group
