"""Checkpoints: written beside training, published whole or not at all, checked when read.

The state is copied while training waits, then written by torch.distributed.checkpoint in a
thread. A checkpoint is a directory `step-N` that appears by a rename, after every file of it is on
disk and its SHA-256 in the manifest. One that does not match its manifest is set aside, never
deleted, and the one before it is read.

Where the job has a depot the directory is the instance's own, and only what is in the depot
counts: it is published there after it is here, and fetched from there where it is not.
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
from torch.utils._pytree import tree_map

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
from autoscaler.training.state.depot import Depot

_log = logging.getLogger(__name__)

_FORMAT = 1
_READS = 3
_READ_AGAIN_SECONDS = 1.0
_ABANDONED_SECONDS = 86_400.0
_PATIENCE_SECONDS = 30.0
_DEPOT_PATIENCE_SECONDS = 900.0


class Checkpoints:
    """The checkpoints of one job in one directory. Used by one thread; writes in another."""

    def __init__(
        self, directory: Path, kept: int, clock: Clock, depot: Depot | None = None
    ) -> None:
        self._directory = directory
        self._kept = kept
        self._clock = clock
        self._depot = depot
        self._writer: threading.Thread | None = None
        self._status = CheckpointStatus()
        self._pause_seconds: float | None = None

    @property
    def place(self) -> str:
        """Where they are, as far as they count."""
        return str(self._directory) if self._depot is None else self._depot.place

    @property
    def patience_seconds(self) -> float:
        """How long a job's last state is worth trying to save: a storage may be away for long."""
        return _PATIENCE_SECONDS if self._depot is None else _DEPOT_PATIENCE_SECONDS

    @property
    def status(self) -> CheckpointStatus:
        """The newest whole checkpoint known here, and what went wrong after it."""
        return self._status

    @property
    def is_writing(self) -> bool:
        """A checkpoint is being written now."""
        return self._writer is not None and self._writer.is_alive()

    def save(
        self,
        step: int,
        tensors: Mapping[str, Any],
        rest: Mapping[str, Any],
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Copy the state and write it in the background; nothing while another is being written.

        `tensors` is a tree for torch.distributed.checkpoint, `rest` plain values; `texts` are
        files by name that people read.
        """
        if self.is_writing:
            return
        began_seconds = self._clock.monotonic()
        copied = tree_map(_copied, dict(tensors)), tree_map(_copied, dict(rest))
        self._pause_seconds = self._clock.monotonic() - began_seconds
        self._writer = threading.Thread(
            target=self._write, args=(step, *copied, texts or {}), name="castor-checkpoint"
        )
        self._writer.start()

    def save_now(
        self,
        step: int,
        tensors: Mapping[str, Any],
        rest: Mapping[str, Any],
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Write the state and return when it is published, or has failed: see `status`.

        A checkpoint of this step with the same `rest` stays; one with another `rest` is replaced.
        """
        self.wait()
        is_saved = self._status.step == step
        if not is_saved or saved_digest(self._path(step)) != digest_of(packed(rest)):
            self._write(step, dict(tensors), dict(rest), texts or {})

    def wait(self) -> None:
        """Return when nothing is being written any more."""
        if self._writer is not None:
            self._writer.join()

    def newest(self) -> Path | None:
        """The newest checkpoint that matches its manifest; those that do not are set aside.

        Raises:
            CheckpointError: there are checkpoints, and none of them is whole; or one can't be
                read, which says nothing of what is in it.
        """
        if self._depot is not None:
            return self._newest_fetched(self._depot)
        published = sorted(self._published(), reverse=True)
        for path in published:
            fault = self._patient_fault_in(path)
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
        """The checkpoint of `step`, if there is one and it is whole.

        Raises:
            CheckpointError: it is of a newer format.
        """
        path = self._path(step)
        try:
            if self._depot is not None:
                manifest = self._depot.manifest(path.name)
                return path if self._fetch(self._depot, path, manifest) is None else None
            return path if path.is_dir() and _fault_in(path) is None else None
        except (OSError, ProviderError) as error:
            _log.warning("%s can't be read: %s", path, error)
            return None

    def keys(self, path: Path) -> frozenset[str]:
        """The names of the tensors and values that the checkpoint at `path` holds."""
        return frozenset(FileSystemReader(path).read_metadata().state_dict_metadata)

    def load(self, path: Path, tensors: dict[str, Any]) -> dict[str, Any]:
        """Read `path` into the tree `tensors`, in place, and return the rest.

        Raises:
            CheckpointError: it does not go with this model.
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
        """Remove what was left half-written by a process that ended over it a day ago or more."""
        for path in self._directory.glob(".step-*.partial"):
            with contextlib.suppress(OSError):
                if self._clock.now() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path)

    def _newest_fetched(self, depot: Depot) -> Path | None:
        """As `newest`, of what is in the depot."""
        try:
            names = depot.names()
            for name in names:
                path = self._directory / name
                manifest = depot.manifest(name)
                fault = self._fetch(depot, path, manifest)
                if fault is None:
                    return path
                if manifest is None or depot.manifest(name) != manifest:
                    return self._newest_fetched(depot)  # pruned or replaced meanwhile
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

    def _fetch(self, depot: Depot, path: Path, manifest: bytes | None) -> str | None:
        """Let `path` be as the depot has it; returns what is wrong with it there, or None.

        `manifest` is what the depot has.

        Raises:
            CheckpointError: it is of a newer format.
            OSError: there is no room for it.
            ProviderError: the depot can't be read.
        """
        if manifest is None:
            return "it is not there"
        if path.is_dir() and _read(path / MANIFEST) == manifest and _fault_in(path) is None:
            return None
        partial = self._partial(path)
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
        with contextlib.suppress(FileNotFoundError):  # another starter did it
            path.rename(aside)

    def _patient_fault_in(self, path: Path) -> str | None:
        """What is wrong with the checkpoint at `path`; a read that fails is tried again."""
        for left in reversed(range(_READS)):
            try:
                return _fault_in(path)
            except OSError as error:
                if not left:
                    raise CheckpointError(
                        f"{path} can't be read ({root_cause(error)}): it is left as it is; "
                        "start again once it can"
                    ) from error
            self._clock.sleep(_READ_AGAIN_SECONDS)
        raise AssertionError("the last read returns or raises")

    def _write(
        self, step: int, tensors: dict[str, Any], rest: dict[str, Any], texts: Mapping[str, str]
    ) -> None:
        started_seconds = self._clock.monotonic()
        final = self._path(step)
        partial = self._partial(final)
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
            self._fail(step, error)
            return
        self._status = CheckpointStatus(
            step=step,
            seconds=self._clock.monotonic() - started_seconds,
            bytes=size_bytes,
            pause_seconds=self._pause_seconds,
        )
        self._prune()

    def _path(self, step: int) -> Path:
        return self._directory / name_of(step)

    @staticmethod
    def _partial(final: Path) -> Path:
        return final.with_name(f".{final.name}.{os.getpid()}.partial")

    def _fail(self, step: int, error: BaseException) -> None:
        fault = root_cause(error)
        text = (
            f"no checkpoint at step {step} in {self.place}: {fault}; "
            f"the newest whole one is {'none' if self._status.step is None else self._status.step}"
        )
        _log.error(text)
        self._status = replace(self._status, error=text)

    def _prune(self) -> None:
        for path in sorted(self._published(), reverse=True)[self._kept :]:
            shutil.rmtree(path, ignore_errors=True)
        if self._depot is not None:
            self._depot.prune_if_possible(self._kept)

    def _published(self) -> Iterator[Path]:
        if self._directory.is_dir():
            found = self._directory.iterdir()
            yield from (path for path in found if step_of(path.name) is not None)


def _copied(leaf: Any) -> Any:
    return leaf.detach().to("cpu", copy=True) if isinstance(leaf, torch.Tensor) else leaf


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(directory: Path, step: int) -> None:
    """Write the manifest. All is on disk when this returns."""
    files = {path.name: _digest(path) for path in sorted(directory.iterdir())}
    manifest = {"format": _FORMAT, "step": step, "torch": torch.__version__, "sha256": files}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _fault_in(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None.

    Raises:
        CheckpointError: it is of a newer format.
        OSError: it can't be read, so it is not known.
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
            f"{path} is of format {manifest.get('format')}, this version reads {_FORMAT}: "
            "use the version of castor that wrote it"
        )
    return None
