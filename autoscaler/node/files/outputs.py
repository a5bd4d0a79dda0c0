"""Schedule of the copies of an instance's outputs, with notes about problems."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.output import MOST_OUTPUT_FILES, OutputManifest
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.storage import output_folder
from autoscaler.files_below import walk_below
from autoscaler.node.files.grants import Grants
from autoscaler.node.files.output_copy import QUIET_SECONDS, OutputCopy, Pass, WorkTree
from autoscaler.node.files.output_places import OutputDirectory, OutputPlace, StoredOutputs
from autoscaler.node.instance import Instance
from autoscaler.node.outbox import Outbox
from autoscaler.node.state import AgentState, Start
from autoscaler.objects import open_grant
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import Assignment

_log = logging.getLogger(__name__)

_MAX_TRIES: Final = 5  # for a file that keeps changing, per checkpoint
_MAX_NAMED_FILES: Final = 3


@dataclass(slots=True)
class _WatchedStart:
    """Output copies of one start of the script.

    `reports_for_job`: the training process of this instance sends the job's reports. The next
    copy is due at `next_seconds` of the monotonic clock; `tries` are left for files that keep
    changing.
    """

    started_seconds: float
    next_seconds: float
    reports_for_job: bool
    checkpoint: int | None = None
    tries: int = _MAX_TRIES
    is_closing: bool = False
    is_over: bool = False


class Outputs:
    """Copier of the outputs of the job's script, while it runs and after its end.

    A copy starts when the training process reports a new checkpoint; for a script without
    training steps, after each checkpoint interval. Of several instances, only the one whose
    training process reports copies outputs. Trials of studies have no outputs, since their study
    keeps artifacts. `on_done` is called after each copy, from another thread.
    """

    def __init__(
        self,
        instance: Instance,
        grants: Grants,
        outbox: Outbox,
        clock: Clock,
        on_done: Callable[[], None],
    ) -> None:
        self._disk = instance.disk
        self._instance = instance.name
        self._grants = grants
        self._outbox = outbox
        self._clock = clock
        self._on_done = on_done
        self._noted: str | None = None
        self._watched: _WatchedStart | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a copy is in progress."""
        return self._thread is not None and self._thread.is_alive()

    def hear(self, report: TrainingReport) -> None:
        """Record a report of the training process on this instance."""
        watched = self._watched
        if watched is None:
            return
        watched.reports_for_job = True
        if report.checkpoint.step != watched.checkpoint:
            watched.checkpoint = report.checkpoint.step
            self._request_copy(watched)

    def turn(self, state: AgentState, steps: int, is_reclaimed: bool) -> None:
        """Start a copy if one is due. Call regularly while the script runs."""
        start = state.start
        if start is None or start.has_ended or not self._has_outputs(state.assignment, start):
            return
        watched = self._watched_start(start, state.assignment)
        if is_reclaimed and not watched.is_closing:
            watched.is_closing = True
            self._request_copy(watched)
        now_seconds = self._clock.monotonic()
        if watched.is_over or self.is_busy or now_seconds < watched.next_seconds:
            return
        watched.next_seconds = now_seconds + state.assignment.checkpoint_interval_seconds
        if self._is_copier(watched, steps):
            self._start(state, is_last=False, is_clean=False)

    def is_settled(self, state: AgentState, steps: int, exit_code: int | None) -> bool:
        """Return whether all outputs of an ended script are copied.

        The first call starts the last copy.
        """
        start = state.start
        assert start is not None
        is_without = not self._has_outputs(state.assignment, start)
        if exit_code is None or state.prepared is None or is_without:
            return True
        watched = self._watched_start(start, state.assignment)
        if self.is_busy:
            return False
        if watched.is_over or not self._is_copier(watched, steps):
            return True
        watched.is_over = True
        self._start(state, is_last=True, is_clean=exit_code == 0)
        return False

    def _request_copy(self, watched: _WatchedStart) -> None:
        """Make a copy due now, with all tries for files that keep changing."""
        watched.tries = _MAX_TRIES
        watched.next_seconds = self._clock.monotonic()

    def _has_outputs(self, assignment: Assignment, start: Start) -> bool:
        """Return whether this instance keeps outputs; of a gang only the leader does."""
        spec = assignment.spec
        if start.follows:
            return False
        has_place = assignment.outputs_directory is not None or self._grants.path is not None
        return spec.study is None and spec.outputs.patterns != () and has_place

    def _watched_start(self, start: Start, assignment: Assignment) -> _WatchedStart:
        watched = self._watched
        if watched is None or watched.started_seconds != start.started_seconds:
            first_seconds = self._clock.monotonic() + assignment.checkpoint_interval_seconds
            # A restarted agent does not know which instance reported: it assumes its own.
            watched = _WatchedStart(
                start.started_seconds, first_seconds, reports_for_job=start.has_stepped
            )
            self._watched = watched
        return watched

    @staticmethod
    def _is_copier(watched: _WatchedStart, steps: int) -> bool:
        return watched.reports_for_job or steps == 0

    def _start(self, state: AgentState, is_last: bool, is_clean: bool) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(state, is_last, is_clean), name="castor-outputs", daemon=True
        )
        self._thread.start()

    def _run(self, state: AgentState, is_last: bool, is_clean: bool) -> None:
        try:
            result = self._copy(state, is_last, is_clean)
        except (CastorError, OSError) as error:
            self._add_note(f"the latest outputs are not copied: {error}")
        except Exception as error:  # thread boundary: a file system may fail in unknown ways
            _log.exception("the copy of outputs failed")
            self._add_note(f"the latest outputs are not copied: {type(error).__name__}: {error}")
        else:
            self._add_note(_left_out_note(result, state.assignment.spec.outputs.maximum_bytes))
            self._schedule_retry(result)
        self._on_done()

    def _copy(self, state: AgentState, is_last: bool, is_clean: bool) -> Pass:
        prepared, assignment = state.prepared, state.assignment
        assert prepared is not None
        tree = WorkTree(self._disk.work, load_laid_out(self._disk.laid_out), prepared.user)
        before = self._load(assignment.job)
        place = self._place(assignment)
        copy = OutputCopy(tree, assignment.spec.outputs, place, before, self._clock)
        copy.on_publish = self._save
        return copy.run(is_last, is_clean)

    def _schedule_retry(self, result: Pass) -> None:
        watched = self._watched
        if watched is not None and watched.tries > 0 and result.unsettled:
            watched.tries -= 1
            watched.next_seconds = self._clock.monotonic() + QUIET_SECONDS

    def _place(self, assignment: Assignment) -> OutputPlace:
        file = self._grants.path
        if file is not None:
            objects = open_grant(file, meter=self._grants.meter)
            folder = output_folder(self._instance)
            return StoredOutputs(objects, folder, self._disk.staged_outputs)
        assert assignment.outputs_directory is not None
        return OutputDirectory(Path(assignment.outputs_directory) / self._instance)

    def _load(self, job: str) -> OutputManifest:
        empty = OutputManifest(job, self._instance, 0.0, ())
        try:
            known = decode(OutputManifest, self._disk.outputs.read_bytes())
        except (OSError, SpecError):
            return empty
        return known if known.job == job else empty

    def _save(self, manifest: OutputManifest) -> None:
        unfinished = self._disk.outputs.with_name(f"{self._disk.outputs.name}.unfinished")
        unfinished.write_bytes(encode(OutputManifest, manifest))
        os.replace(unfinished, self._disk.outputs)

    def _add_note(self, text: str | None) -> None:
        if text is not None and text != self._noted:
            _log.warning(text)
            self._outbox.add_notes([text])
        self._noted = text


def save_laid_out(path: Path, work: Path) -> None:
    """Record size and modification time of the files in `work`, before a script changes them."""
    laid_out = {file.path: (file.bytes, file.modified_ns) for file in walk_below(work)}
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(encode(dict[str, tuple[int, int]], _printable(laid_out)))
    os.replace(unfinished, path)


def load_laid_out(path: Path) -> Mapping[str, tuple[int, int]]:
    """Return the record of `save_laid_out`; empty if it can't be read.

    Maps paths in the work directory to (bytes, modification time in nanoseconds).
    """
    try:
        return decode(dict[str, tuple[int, int]], path.read_bytes())
    except (OSError, SpecError):
        return {}


def _printable(laid_out: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return the entries with printable names; files with other names are never outputs."""
    return {path: stamp for path, stamp in laid_out.items() if path.isprintable()}


def _left_out_note(result: Pass, maximum_bytes: int) -> str | None:
    left_out = result.manifest.left_out
    if not left_out:
        return None
    named = ", ".join(left_out[:_MAX_NAMED_FILES]) + (
        ", ..." if len(left_out) > _MAX_NAMED_FILES else ""
    )
    return (
        f"outputs are not copied: {named}; together they are above the limit of {maximum_bytes:,} "
        f"bytes or {MOST_OUTPUT_FILES:,} files, or the agent can't read them; raise "
        "outputs.limit, or name the files to keep in outputs.paths"
    )
