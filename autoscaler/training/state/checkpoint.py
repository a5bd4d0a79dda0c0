"""Checkpoints: written in the background, published atomically, verified when read.

The state is copied while training pauses; torch.distributed.checkpoint then writes it in a
thread. A checkpoint is a directory `step-N`. It appears by a rename, once all its files are on
disk and their SHA-256 digests are in the manifest. A checkpoint that does not match its manifest
is set aside, never deleted, and the previous one is read.

If the job has a remote checkpoint store, the directory is a local copy on the instance. Only
checkpoints in the store count: each is uploaded after it is written, and downloaded if the local
copy is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as read_tensors
from torch.distributed.checkpoint.state_dict_saver import save as write_tensors

from autoscaler.clock import Clock
from autoscaler.domain.checkpoint import MANIFEST, name_of, step_of
from autoscaler.domain.errors import CheckpointError, ProviderError
from autoscaler.domain.report import CheckpointStatus
from autoscaler.training.state.checkpoint_files import (
    REST,
    digest_of,
    packed,
    publish,
    root_cause,
    saved_digest,
)
from autoscaler.training.state.host_copies import HostCopies
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints

_log = logging.getLogger(__name__)

_FORMAT = 1
_READ_ATTEMPTS = 3
_READ_RETRY_SECONDS = 1.0
_ABANDONED_SECONDS = 86_400.0
_SAVE_TIMEOUT_SECONDS = 30.0
_DEPOT_SAVE_TIMEOUT_SECONDS = 900.0


class Checkpoints:
    """Checkpoints of one job in one directory. One thread calls it; another one writes."""

    def __init__(
        self, directory: Path, kept: int, clock: Clock, depot: RemoteCheckpoints | None = None
    ) -> None:
        self._directory = directory
        self._kept_count = kept
        self._clock = clock
        self._depot = depot
        self._writer: threading.Thread | None = None
        self._status = CheckpointStatus()
        self._pause_seconds: float | None = None
        self._host_copies = HostCopies()

    @property
    def place(self) -> str:
        """Location of the checkpoints that count: the remote store, or else the directory."""
        return str(self._directory) if self._depot is None else self._depot.place

    @property
    def patience_seconds(self) -> float:
        """Seconds to keep trying to save a job's last state; longer for a remote store."""
        return _SAVE_TIMEOUT_SECONDS if self._depot is None else _DEPOT_SAVE_TIMEOUT_SECONDS

    @property
    def status(self) -> CheckpointStatus:
        """Step of the newest whole checkpoint, and the error of any later attempt."""
        return self._status

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writer is not None and self._writer.is_alive()

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
        if self.is_writing:
            return
        began_seconds = self._clock.monotonic()
        copies = self._host_copies.copy((dict(tensors), dict(rest)))
        self._pause_seconds = self._clock.monotonic() - began_seconds
        self._writer = threading.Thread(
            target=self._write, args=(step, *copies, texts or {}), name="castor-checkpoint"
        )
        self._writer.start()

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
        is_saved = self._status.step == step
        if not is_saved or saved_digest(self._path_of(step)) != digest_of(packed(rest)):
            self._write(step, dict(tensors), dict(rest), texts or {})

    def wait(self) -> None:
        """Wait until the background write has ended."""
        if self._writer is not None:
            self._writer.join()

    def newest(self) -> Path | None:
        """Return the newest checkpoint that matches its manifest; None if there is no checkpoint.

        Newer checkpoints that do not match are set aside.

        Raises:
            CheckpointError: there are checkpoints but none is whole, or one can't be read.
        """
        if self._depot is not None:
            return self._fetch_newest(self._depot)
        published = sorted(self._published_paths(), reverse=True)
        for path in published:
            fault = self._fault_after_retries(path)
            if fault is None:
                return path
            self._set_aside(path, fault)
        if published:
            raise CheckpointError(
                f"no checkpoint in {self._directory} is whole: they are kept there as *.corrupt; "
                "move them away to start from the beginning"
            )
        return None

    def at(self, step: int) -> Path | None:
        """Return the checkpoint of `step`; None if it is missing, broken or unreadable.

        Raises:
            CheckpointError: it has another format than this version reads.
        """
        path = self._path_of(step)
        try:
            if self._depot is not None:
                manifest = self._depot.manifest(path.name)
                return path if self._fetch(self._depot, path, manifest) is None else None
            return path if path.is_dir() and _fault_in(path) is None else None
        except (OSError, ProviderError) as error:
            _log.warning("%s can't be read: %s", path, error)
            return None

    def keys(self, path: Path) -> frozenset[str]:
        """Return the names of the tensors and values in the checkpoint at `path`."""
        return frozenset(FileSystemReader(path).read_metadata().state_dict_metadata)

    def load(self, path: Path, tensors: dict[str, Any]) -> dict[str, Any]:
        """Read the checkpoint at `path` into the tree `tensors`, and return its plain values.

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

    def _fetch_newest(self, depot: RemoteCheckpoints) -> Path | None:
        """Return the newest whole checkpoint of the remote store, downloaded; None if it has none.

        Raises:
            CheckpointError: there are checkpoints but none is whole, or the store can't be read.
        """
        try:
            names = depot.names()
            for name in names:
                path = self._directory / name
                manifest = depot.manifest(name)
                fault = self._fetch(depot, path, manifest)
                if fault is None:
                    return path
                if manifest is None or depot.manifest(name) != manifest:
                    return self._fetch_newest(depot)  # pruned or replaced meanwhile
                _log.error("%s/%s is corrupt (%s): set aside", depot.place, name, fault)
                depot.set_aside(name)
        except (OSError, ProviderError) as error:
            raise CheckpointError(
                f"the checkpoints in {depot.place} can't be read ({root_cause(error)}): they are "
                "left as they are; start again once they can"
            ) from error
        if names:
            raise CheckpointError(
                f"no checkpoint in {depot.place} is whole: they are kept there, with manifests "
                "called *.corrupt; start a job of another name to start from the beginning"
            )
        return None

    def _fetch(self, depot: RemoteCheckpoints, path: Path, manifest: bytes | None) -> str | None:
        """Download a checkpoint to `path` unless the local copy is whole and equal.

        `manifest` is the remote manifest. Return what is wrong with the remote checkpoint, or
        None.

        Raises:
            CheckpointError: it has another format than this version reads.
            OSError: the local disk can't be written, for instance as it is full.
            ProviderError: the remote store can't be read.
        """
        if manifest is None:
            return "it is not there"
        if path.is_dir() and _bytes_of(path / MANIFEST) == manifest and _fault_in(path) is None:
            return None
        partial = self._partial_path(path)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            depot.fetch(path.name, partial)
            if (fault := _fault_in(partial)) is not None:
                return fault
            shutil.rmtree(path, ignore_errors=True)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return None

    def _set_aside(self, path: Path, fault: str) -> None:
        aside = path.with_name(f"{path.name}.corrupt")
        _log.error("%s is corrupt (%s): set aside as %s", path, fault, aside.name)
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):  # another process has renamed it
            path.rename(aside)

    def _fault_after_retries(self, path: Path) -> str | None:
        """Return what is wrong with the checkpoint at `path`, or None; retry failed reads.

        Raises:
            CheckpointError: all reads failed, or the format is another one.
        """
        for retries_left in reversed(range(_READ_ATTEMPTS)):
            try:
                return _fault_in(path)
            except OSError as error:
                if not retries_left:
                    raise CheckpointError(
                        f"{path} can't be read ({root_cause(error)}): it is left as it is; "
                        "start again once it can"
                    ) from error
            self._clock.sleep(_READ_RETRY_SECONDS)
        raise AssertionError("the last read returns or raises")

    def _write(
        self, step: int, tensors: dict[str, Any], rest: dict[str, Any], texts: Mapping[str, str]
    ) -> None:
        started_seconds = self._clock.monotonic()
        final = self._path_of(step)
        partial = self._partial_path(final)
        replaced = partial.with_name(f".{final.name}.{os.getpid()}.replaced.partial")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            plain = packed(rest)
            if saved_digest(final) != digest_of(plain):
                write_tensors(tensors, checkpoint_id=partial, no_dist=True)
                (partial / REST).write_bytes(plain)
                for name, text in texts.items():
                    (partial / name).write_text(text)
                _seal(partial, step)
                publish(partial, final, replaced)
                shutil.rmtree(replaced, ignore_errors=True)
            size_bytes = sum(path.stat().st_size for path in final.iterdir())
            if self._depot is not None:
                self._depot.keep(final)
        except (OSError, CheckpointException, RuntimeError, ProviderError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            self._record_failure(step, error)
            return
        self._status = CheckpointStatus(
            step=step,
            seconds=self._clock.monotonic() - started_seconds,
            bytes=size_bytes,
            pause_seconds=self._pause_seconds,
        )
        self._prune()

    def _path_of(self, step: int) -> Path:
        return self._directory / name_of(step)

    @staticmethod
    def _partial_path(final: Path) -> Path:
        return final.with_name(f".{final.name}.{os.getpid()}.partial")

    def _record_failure(self, step: int, error: BaseException) -> None:
        fault = root_cause(error)
        text = (
            f"no checkpoint at step {step} in {self.place}: {fault}; "
            f"the newest whole one is {'none' if self._status.step is None else self._status.step}"
        )
        _log.error(text)
        self._status = replace(self._status, error=text)

    def _prune(self) -> None:
        for path in sorted(self._published_paths(), reverse=True)[self._kept_count :]:
            shutil.rmtree(path, ignore_errors=True)
        if self._depot is not None:
            self._depot.prune_if_possible(self._kept_count)

    def _published_paths(self) -> Iterator[Path]:
        if self._directory.is_dir():
            paths = self._directory.iterdir()
            yield from (path for path in paths if step_of(path.name) is not None)


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(directory: Path, step: int) -> None:
    """Write the manifest of a checkpoint, and flush all its files to disk."""
    files = {path.name: _digest(path) for path in sorted(directory.iterdir())}
    manifest = {"format": _FORMAT, "step": step, "torch": torch.__version__, "sha256": files}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _fault_in(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, or None.

    Raises:
        CheckpointError: it has another format than this version reads.
        OSError: it can't be read, so its state is unknown.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        for name, digest in manifest["sha256"].items():
            if _digest(path / name) != digest:
                return f"{name} does not match its checksum"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} can't be read: {error}"
    if manifest.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path} has format {manifest.get('format')}, and this version reads {_FORMAT}: "
            "use the version of castor that wrote it"
        )
    return None
