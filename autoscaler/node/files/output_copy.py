"""Pass over a work directory that copies changed files to the place of outputs."""

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
from autoscaler.node.files.output_places import OutputPlace
from autoscaler.wire.codec import encode

_log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 2.0
UNFINISHED: Final = ".unfinished"
_PUBLISH_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 1 << 20
_MAX_LEFT_OUT_PATHS: Final = 100
# Names of directories and files that are no outputs if the job file names no paths.
IGNORED: Final = frozenset(
    {
        *("__pycache__", ".venv", "venv", ".git", ".cache", ".pytest_cache", ".mypy_cache"),
        *(".ruff_cache", ".ipynb_checkpoints", ".triton", "node_modules", "lost+found"),
    }
)


@dataclass(frozen=True, slots=True)
class WorkTree:
    """Work directory of a job's script.

    `laid_out` maps the paths of files from before the script began to (bytes, modification time
    in nanoseconds). Files of users other than `user` are left out; None includes all users.
    """

    directory: Path
    laid_out: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    user: int | None = None

    def chosen(self, spec: OutputSpec) -> list[FileStamp]:
        """Return the files that the spec selects."""
        if spec.patterns is None:
            files = walk_below(self.directory, IGNORED)
            return [
                file
                for file in files
                if self._is_of_user(file)
                and self.laid_out.get(file.path) != (file.bytes, file.modified_ns)
            ]
        # The leading slash anchors a pattern at the work directory and prevents negation.
        matcher = GitIgnoreSpec.from_lines(f"/{pattern}" for pattern in spec.patterns)
        files = walk_below(self.directory)
        return [file for file in files if self._is_of_user(file) and matcher.match_file(file.path)]

    def _is_of_user(self, file: FileStamp) -> bool:
        return self.user in (None, file.user)


@dataclass(frozen=True, slots=True)
class Pass:
    """Result of one pass. `unsettled` are files that changed too recently to be copied."""

    manifest: OutputManifest
    unsettled: tuple[str, ...]


class OutputCopy:
    """Copier of one instance's outputs to `place`, starting from the manifest `before`.

    A file is copied if it has not changed for `QUIET_SECONDS`, nor during the copy. With `is_last`
    the script has ended. If it `is_clean`, recent files are copied too. Otherwise recent files may
    be cut off; they get a name of their own, beside the earlier version.
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
        """Copy changed files, and publish the manifest; see the class.

        Raises:
            ProviderError, OSError: the place can't be written, or the directory can't be read.
        """
        try:
            return self._run(is_last, is_clean)
        finally:
            shutil.rmtree(self._place.staging, ignore_errors=True)

    def _run(self, is_last: bool, is_clean: bool) -> Pass:
        began_seconds = self._clock.now()
        chosen, left_out = _select_within_limits(
            self._tree.chosen(self._spec), self._spec.maximum_bytes
        )
        kept: dict[str, OutputFile] = {}
        unsettled: list[str] = []
        published_seconds = self._clock.monotonic()
        for stamp in chosen:
            is_quiet = began_seconds - stamp.modified_seconds >= QUIET_SECONDS
            known = self._known.get(stamp.path)
            if known is not None and _is_same(known, stamp):
                kept[stamp.path] = known
            elif is_quiet or (is_last and is_clean):
                copied = self._copy(stamp, stamp.path)
                kept.update({file.path: file for file in (copied or known,) if file is not None})
                unsettled += [] if copied else [stamp.path]
            else:
                cut_off = self._copy(stamp, stamp.path + UNFINISHED) if is_last else None
                kept.update({file.path: file for file in (known, cut_off) if file is not None})
                unsettled.append(stamp.path)
            if self._clock.monotonic() - published_seconds >= _PUBLISH_SECONDS:
                self._publish({**self._known, **kept}.values(), left_out)
                published_seconds = self._clock.monotonic()
        manifest = self._publish(kept.values(), left_out)
        return Pass(manifest, tuple(unsettled))

    def _copy(self, stamp: FileStamp, name: str) -> OutputFile | None:
        """Copy one file; return None if it changed or vanished meanwhile, or is unreadable."""
        try:
            descriptor = open_below(self._tree.directory, stamp.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("%s is not copied: %s", stamp.path, error.strerror or error)
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
        left_out = tuple(sorted({*left_out, *self._unreadable})[:_MAX_LEFT_OUT_PATHS])
        manifest = replace(
            self._before, kept_seconds=self._clock.now(), files=ordered, left_out=left_out
        )
        if (ordered, left_out) == (self._before.files, self._before.left_out):
            return self._before
        self._place.publish(encode(OutputManifest, manifest))
        needed_sha256s = {file.sha256 for file in ordered}
        self._place.remove({file.sha256 for file in self._before.files} - needed_sha256s)
        self._before = manifest
        self.on_publish(manifest)
        return manifest


def _select_within_limits(
    files: list[FileStamp], maximum_bytes: int
) -> tuple[list[FileStamp], tuple[str, ...]]:
    """Return the smallest files that fit the limits together, and the paths of the others."""
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
    return chosen, tuple(sorted(left_out)[:_MAX_LEFT_OUT_PATHS])


def _is_same(file: OutputFile, stamp: FileStamp) -> bool:
    return (file.bytes, file.modified_seconds) == (stamp.bytes, stamp.modified_seconds)
