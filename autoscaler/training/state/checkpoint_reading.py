"""Search for the newest whole checkpoint, by all ranks of a session together.

A checkpoint that does not match its manifest is set aside, never deleted, and the previous one is
read. From a remote store, each disk receives the files that its ranks read, and no others.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.checkpoint import MANIFEST
from autoscaler.domain.errors import CheckpointError, NotFound
from autoscaler.domain.transfer import Transfer
from autoscaler.training.state.checkpoint_disks import disk_leaders, require_one_disk
from autoscaler.training.state.checkpoint_files import (
    bytes_of,
    digests_in,
    fault_in_files,
    file_digest,
    is_part,
    published,
    root_cause,
)
from autoscaler.training.state.joint_work import JointWork, WorkError
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints

_log = logging.getLogger(__name__)

_READ_ATTEMPTS = 3
_READ_RETRY_SECONDS = 1.0

FilesRead = Callable[[Path], frozenset[str]]
"""Function from a checkpoint's directory to the names of the files of tensors that a rank reads.

Only the files that hold no tensors are there when it is called."""


class CheckpointSearch:
    """Search in a directory, or in a remote store with the directory as the local copy."""

    def __init__(
        self, directory: Path, remote: RemoteCheckpoints | None, work: JointWork, clock: Clock
    ) -> None:
        self._directory = directory
        self._remote = remote
        self._work = work
        self._clock = clock
        self._disk_leaders: list[int] | None = None

    def leads_disk(self) -> bool:
        """Return whether this rank is the first that sees its directory.

        All ranks must call this together.

        Raises:
            CheckpointError: the ranks must share a directory and do not, or one can't be used.
        """
        return self._leaders()[self._work.ranks.rank] == self._work.ranks.rank

    def newest(self, files_read: FilesRead | None) -> Path | None:
        """Return the newest whole checkpoint; None if there is none.

        Args:
            files_read: the files of tensors that this rank reads; None for all.

        Raises:
            CheckpointError: there are checkpoints but none is whole, or one can't be read.
        """
        leaders = self._leaders()
        try:
            if self._remote is not None:
                return self._newest_in(self._remote, files_read, leaders)
            return self._newest_on_disk()
        except WorkError as error:
            place = self._directory if self._remote is None else self._remote.place
            raise CheckpointError(
                f"the checkpoints in {place} can't be read ({error}): they are "
                "left as they are; start again once they can"
            ) from error

    def _leaders(self) -> list[int]:
        if self._disk_leaders is None:
            leaders = disk_leaders(self._directory, self._work)
            if self._remote is None:
                require_one_disk(self._directory, leaders)
            self._disk_leaders = leaders
        return self._disk_leaders

    def _newest_on_disk(self) -> Path | None:
        work = self._work
        paths = work.on_leader(lambda: sorted(published(self._directory), reverse=True))
        for path in paths:
            fault = _first(work.on_all(partial(self._fault_after_retries, path)))
            if fault is None:
                return path
            work.on_leader(partial(_set_aside, path, fault))
        if paths:
            raise CheckpointError(
                f"no checkpoint in {self._directory} is whole: they are kept there as *.corrupt; "
                "move them away to start from the beginning"
            )
        return None

    def _fault_after_retries(self, path: Path) -> str | None:
        """Return what is wrong with this rank's share of the files at `path`; retry failed reads.

        Raises:
            CheckpointError: all reads failed, or the format is another one.
        """
        for retries_left in reversed(range(_READ_ATTEMPTS)):
            try:
                return self._fault_in_share(path)
            except OSError as error:
                if not retries_left:
                    raise CheckpointError(
                        f"{path} can't be read ({root_cause(error)}): it is left as it is; "
                        "start again once it can"
                    ) from error
            self._clock.sleep(_READ_RETRY_SECONDS)
        raise AssertionError("the last read returns or raises")

    def _fault_in_share(self, path: Path) -> str | None:
        manifest = bytes_of(path / MANIFEST)
        if manifest is None:
            return f"{MANIFEST} is missing"
        try:
            digests = digests_in(manifest, str(path))
        except ValueError as error:
            return str(error)
        ranks = self._work.ranks
        return fault_in_files(path, digests, sorted(digests)[ranks.rank :: ranks.ranks])

    def _newest_in(
        self, remote: RemoteCheckpoints, files_read: FilesRead | None, leaders: list[int]
    ) -> Path | None:
        work = self._work
        names = work.on_leader(remote.names)
        for name in names:
            manifest = work.on_leader(partial(remote.manifest, name))
            copy = _LocalCopy(self._directory / name, remote, work, leaders)
            fault = copy.complete(manifest, files_read)
            if fault is None:
                return copy.path
            if manifest is None or work.on_leader(partial(remote.manifest, name)) != manifest:
                return self._newest_in(remote, files_read, leaders)  # pruned or replaced meanwhile
            if work.ranks.is_leader:
                _log.error("%s/%s is corrupt (%s): set aside", remote.place, name, fault)
            work.on_leader(partial(remote.set_aside, name))
        if names:
            raise CheckpointError(
                f"no checkpoint in {remote.place} is whole: they are kept there, with manifests "
                "called *.corrupt; start a job of another name to start from the beginning"
            )
        return None


class _LocalCopy:
    """Copy of a remote checkpoint on the disk of each rank."""

    def __init__(
        self, path: Path, remote: RemoteCheckpoints, work: JointWork, leaders: list[int]
    ) -> None:
        self.path = path
        self._remote = remote
        self._work = work
        self._leaders = leaders

    def complete(self, manifest: bytes | None, files_read: FilesRead | None) -> str | None:
        """Download what the ranks read and is missing; return what is wrong at the store, or None.

        `manifest` is the remote manifest.

        Raises:
            CheckpointError: the checkpoint has another format, or does not fit.
            WorkError: a disk can't be written, or the store can't be read.
        """
        if manifest is None:
            return "it is not there"
        try:
            digests = digests_in(manifest, f"{self._remote.place}/{self.path.name}")
        except ValueError as error:
            return str(error)
        common = [name for name in digests if not is_part(name)]
        fault = self._download(lambda: self._begin(manifest, digests, common))
        if fault is not None:
            return fault
        parts = frozenset(name for name in digests if is_part(name))
        reads = self._work.on_all(lambda: files_read(self.path) if files_read else parts)
        own_disk = self._leaders[self._work.ranks.rank]
        wanted = {
            name
            for rank_reads, leader in zip(reads, self._leaders, strict=True)
            for name in rank_reads
            if leader == own_disk
        }
        return self._download(lambda: self._finish(manifest, digests, wanted & parts))

    def _download(self, download: Callable[[], str | None]) -> str | None:
        """Run `download` on the first rank of each disk; return the first fault."""
        ranks, before = self._work.ranks, self._remote.transferred
        leads = self._leaders[ranks.rank] == ranks.rank

        def counted() -> tuple[str | None, Transfer]:
            fault = download() if leads else None
            return fault, self._remote.transferred.beyond(before)

        results = self._work.on_all(counted)
        if ranks.is_leader:  # the agents learn of the leader's transfers only
            self._remote.count(sum((transfer for _, transfer in results[1:]), Transfer()))
        return _first(fault for fault, _ in results)

    def _begin(
        self, manifest: bytes, digests: Mapping[str, str], names: Iterable[str]
    ) -> str | None:
        if bytes_of(self.path / MANIFEST) != manifest:
            shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        return self._fetch(digests, names)

    def _finish(
        self, manifest: bytes, digests: Mapping[str, str], names: Iterable[str]
    ) -> str | None:
        fault = self._fetch(digests, names)
        if fault is None:
            (self.path / MANIFEST).write_bytes(manifest)
        return fault

    def _fetch(self, digests: Mapping[str, str], names: Iterable[str]) -> str | None:
        for name in sorted(names):
            target = self.path / name
            if target.is_file() and file_digest(target) == digests[name]:
                continue
            target.unlink(missing_ok=True)
            with contextlib.suppress(NotFound):  # reported as missing below
                self._remote.download(self.path.name, name, target)
            if (fault := fault_in_files(self.path, digests, [name])) is not None:
                return fault
        return None


def _set_aside(path: Path, fault: str) -> None:
    aside = path.with_name(f"{path.name}.corrupt")
    _log.error("%s is corrupt (%s): set aside as %s", path, fault, aside.name)
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):  # another process has renamed it
        path.rename(aside)


def _first(faults: Iterable[str | None]) -> str | None:
    """Return the first fault, or None."""
    return next((fault for fault in faults if fault is not None), None)
