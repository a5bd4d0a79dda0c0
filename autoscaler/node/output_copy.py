"""One pass over a work directory that copies what changed to the place of outputs."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from autoscaler.clock import Clock
from autoscaler.domain.output import (
    MOST_OUTPUT_FILES,
    OutputFile,
    OutputManifest,
    OutputSpec,
    is_output_path,
)
from autoscaler.domain.rules import LATEST_SECONDS
from autoscaler.files_below import FileStamp, open_below, stamp_of, walk_below
from autoscaler.node.output_places import OutputPlace
from autoscaler.wire.codec import encode

_log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 2.0
UNFINISHED: Final = ".unfinished"
_PUBLISH_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 1 << 20
_LEFT_OUT_NAMED: Final = 100
# Directories and files that scripts leave and nobody fetches, where the job file names no paths.
IGNORED: Final = frozenset(
    {
        *("__pycache__", ".venv", "venv", ".git", ".cache", ".pytest_cache", ".mypy_cache"),
        *(".ruff_cache", ".ipynb_checkpoints", ".triton", "node_modules", "lost+found"),
    }
)


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The work directory of a job's script.

    `laid_out` are size and time of change of the files that were there before the script began.
    Files of other users than `user` are left out; None takes those of any.
    """

    directory: Path
    laid_out: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    user: int | None = None

    def chosen(self, spec: OutputSpec) -> list[FileStamp]:
        """Return the files that the spec asks for."""
        if spec.patterns is None:
            files = walk_below(self.directory, IGNORED)
            return [
                file
                for file in files
                if self._is_ours(file)
                and self.laid_out.get(file.path) != (file.bytes, file.modified_ns)
            ]
        # With the slash in front a pattern counts from the work directory, and nothing negates.
        matcher = GitIgnoreSpec.from_lines(f"/{pattern}" for pattern in spec.patterns)
        files = walk_below(self.directory)
        return [file for file in files if self._is_ours(file) and matcher.match_file(file.path)]

    def _is_ours(self, file: FileStamp) -> bool:
        return self.user in (None, file.user)


@dataclass(frozen=True, slots=True)
class Pass:
    """Result of one pass. `unsettled` are files that changed too lately to be copied."""

    manifest: OutputManifest
    unsettled: tuple[str, ...]


class OutputCopy:
    """Copies outputs of one instance to `place`, beginning with what `before` has of them.

    A file counts as written when it has not changed for `QUIET_SECONDS`, and not while it was
    copied. `is_last` says that the script has ended: cleanly, or so that files it changed at the
    end may be cut off. The latter are kept under a name of their own, beside the version before.
    """

    def __init__(
        self,
        tree: WorkTree,
        spec: OutputSpec,
        place: OutputPlace,
        before: OutputManifest,
        clock: Clock,
    ) -> None:
        self._tree = tree
        self._spec = spec
        self._place = place
        self._before = before
        self._clock = clock
        self._known = {file.path: file for file in before.files}
        self._unreadable: list[str] = []
        self.on_publish: Callable[[OutputManifest], None] = lambda manifest: None

    def run(self, is_last: bool, is_clean: bool) -> Pass:
        """Copy what changed, and publish the manifest; see the class.

        Raises:
            ProviderError, OSError: the place can't be written, or the directory can't be read.
        """
        try:
            return self._run(is_last, is_clean)
        finally:
            shutil.rmtree(self._place.staging, ignore_errors=True)

    def _run(self, is_last: bool, is_clean: bool) -> Pass:
        began_seconds = self._clock.now()
        chosen, left_out = _within(self._tree.chosen(self._spec), self._spec.maximum_bytes)
        kept: dict[str, OutputFile] = {}
        unsettled: list[str] = []
        published_seconds = self._clock.monotonic()
        for stamp in chosen:
            is_quiet = began_seconds - stamp.modified_seconds >= QUIET_SECONDS
            known = self._known.get(stamp.path)
            if known is not None and _is_same(known, stamp):
                kept[stamp.path] = known
            elif is_quiet or (is_last and is_clean):
                copied = self._copied(stamp, stamp.path)
                kept.update({file.path: file for file in (copied or known,) if file is not None})
                unsettled += [] if copied else [stamp.path]
            else:
                cut_off = self._copied(stamp, stamp.path + UNFINISHED) if is_last else None
                kept.update({file.path: file for file in (known, cut_off) if file is not None})
                unsettled.append(stamp.path)
            if self._clock.monotonic() - published_seconds >= _PUBLISH_SECONDS:
                self._publish({**self._known, **kept}.values(), left_out)
                published_seconds = self._clock.monotonic()
        manifest = self._publish(kept.values(), left_out)
        return Pass(manifest, tuple(unsettled))

    def _copied(self, stamp: FileStamp, name: str) -> OutputFile | None:
        """Copy one file; return None if it was changed or removed meanwhile."""
        try:
            descriptor = open_below(self._tree.directory, stamp.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("%s is no output: %s", stamp.path, error.strerror or error)
            self._unreadable.append(stamp.path)
            return None
        staged = self._place.staging / "file"
        staged.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with os.fdopen(descriptor, "rb") as source:
            if stamp_of(descriptor, stamp.path) != stamp:
                return None
            with staged.open("wb") as copy:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    copy.write(chunk)
            if stamp_of(descriptor, stamp.path) != stamp:
                return None
        sha256 = digest.hexdigest()
        self._place.take(staged, sha256)
        return OutputFile(name, stamp.bytes, sha256, stamp.modified_seconds)

    def _publish(self, files: Iterable[OutputFile], left_out: tuple[str, ...]) -> OutputManifest:
        ordered = tuple(sorted(files, key=lambda file: file.path))
        left_out = tuple(sorted({*left_out, *self._unreadable})[:_LEFT_OUT_NAMED])
        manifest = replace(
            self._before, kept_seconds=self._clock.now(), files=ordered, left_out=left_out
        )
        if (ordered, left_out) == (self._before.files, self._before.left_out):
            return self._before
        self._place.publish(encode(OutputManifest, manifest))
        needed = {file.sha256 for file in ordered}
        self._place.remove({file.sha256 for file in self._before.files} - needed)
        self._before = manifest
        self.on_publish(manifest)
        return manifest


def _within(files: list[FileStamp], maximum_bytes: int) -> tuple[list[FileStamp], tuple[str, ...]]:
    """Return the smallest files that fit into the limits together, and the paths of the others."""
    chosen: list[FileStamp] = []
    left_out: list[str] = []
    total_bytes = 0
    for file in sorted(files, key=lambda file: (file.bytes, file.path)):
        total_bytes += file.bytes
        fits = total_bytes <= maximum_bytes and len(chosen) < MOST_OUTPUT_FILES
        has_time = 0 <= file.modified_seconds <= LATEST_SECONDS
        if fits and has_time and is_output_path(file.path):
            chosen.append(file)
        else:
            total_bytes -= file.bytes
            left_out.append(ascii(file.path)[1:-1])
    return chosen, tuple(sorted(left_out)[:_LEFT_OUT_NAMED])


def _is_same(file: OutputFile, stamp: FileStamp) -> bool:
    return (file.bytes, file.modified_seconds) == (stamp.bytes, stamp.modified_seconds)
