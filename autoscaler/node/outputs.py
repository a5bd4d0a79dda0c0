"""Outputs of an instance: when they are copied, and what is told of it."""

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
from autoscaler.node.grants import Grants
from autoscaler.node.instance import Instance
from autoscaler.node.outbox import Outbox
from autoscaler.node.output_copy import QUIET_SECONDS, OutputCopy, Pass, WorkTree
from autoscaler.node.output_places import OutputDirectory, OutputPlace, StoredOutputs
from autoscaler.node.state import AgentState, Start
from autoscaler.objects import open_grant
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import Assignment

_log = logging.getLogger(__name__)

_TRIES: Final = 5  # at a file that changes again and again, for one checkpoint
_NAMED: Final = 3


@dataclass(slots=True)
class _Watched:
    """One start of the script. `speaks`: its training reports, so that it speaks for the job.

    The next copy is due at `next_seconds` of the monotonic clock; `tries` are left for files that
    change again and again.
    """

    started_seconds: float
    next_seconds: float
    speaks: bool
    checkpoint: int | None = None
    tries: int = _TRIES
    is_closing: bool = False
    is_over: bool = False


class Outputs:
    """Copies the outputs of the job's script while it runs, and when it has ended.

    Copies are made when the training process reports a new checkpoint; of a script without
    training steps, after each checkpoint interval. Of several instances only the one copies whose
    training process reports. Trials of studies have no outputs: their study keeps artifacts.
    `on_done` is called after each copy, from another thread.
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
        self._watched: _Watched | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a copy is under way."""
        return self._thread is not None and self._thread.is_alive()

    def hear(self, report: TrainingReport) -> None:
        """Take note of a report of the training process beside this agent."""
        watched = self._watched
        if watched is None:
            return
        watched.speaks = True
        if report.checkpoint.step != watched.checkpoint:
            watched.checkpoint = report.checkpoint.step
            self._ask(watched)

    def turn(self, state: AgentState, steps: int, is_reclaimed: bool) -> None:
        """Start a copy if one is due. Called regularly while the script runs."""
        start = state.start
        if start is None or start.has_ended or not self._has_outputs(state.assignment):
            return
        watched = self._watching(start, state.assignment)
        if is_reclaimed and not watched.is_closing:
            watched.is_closing = True
            self._ask(watched)
        now_seconds = self._clock.monotonic()
        if watched.is_over or self.is_busy or now_seconds < watched.next_seconds:
            return
        watched.next_seconds = now_seconds + state.assignment.checkpoint_interval_seconds
        if self._copies(watched, steps):
            self._start(state, is_last=False, is_clean=False)

    def is_settled(self, state: AgentState, steps: int, exit_code: int | None) -> bool:
        """Whether all is kept of a script that has ended; the first call starts the last copy."""
        start = state.start
        assert start is not None
        if exit_code is None or state.prepared is None or not self._has_outputs(state.assignment):
            return True
        watched = self._watching(start, state.assignment)
        if self.is_busy:
            return False
        if watched.is_over or not self._copies(watched, steps):
            return True
        watched.is_over = True
        self._start(state, is_last=True, is_clean=exit_code == 0)
        return False

    def _ask(self, watched: _Watched) -> None:
        """Have a copy made as soon as can be, and again while files change."""
        watched.tries = _TRIES
        watched.next_seconds = self._clock.monotonic()

    def _has_outputs(self, assignment: Assignment) -> bool:
        spec = assignment.spec
        has_place = assignment.outputs_directory is not None or self._grants.path is not None
        return spec.study is None and spec.outputs.patterns != () and has_place

    def _watching(self, start: Start, assignment: Assignment) -> _Watched:
        watched = self._watched
        if watched is None or watched.started_seconds != start.started_seconds:
            first_seconds = self._clock.monotonic() + assignment.checkpoint_interval_seconds
            # An agent that finds a start with steps does not know who spoke for the job so far.
            watched = _Watched(start.started_seconds, first_seconds, speaks=start.has_stepped)
            self._watched = watched
        return watched

    @staticmethod
    def _copies(watched: _Watched, steps: int) -> bool:
        return watched.speaks or steps == 0

    def _start(self, state: AgentState, is_last: bool, is_clean: bool) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(state, is_last, is_clean), name="castor-outputs", daemon=True
        )
        self._thread.start()

    def _run(self, state: AgentState, is_last: bool, is_clean: bool) -> None:
        try:
            result = self._copy(state, is_last, is_clean)
        except (CastorError, OSError) as error:
            self._tell(f"outputs are not kept as they are now: {error}")
        except Exception as error:  # the thread's edge: a file system may fail in ways unknown
            _log.exception("the copy of outputs failed")
            self._tell(f"outputs are not kept as they are now: {type(error).__name__}: {error}")
        else:
            self._tell(_told_of(result, state.assignment.spec.outputs.maximum_bytes))
            self._ask_again(result)
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

    def _ask_again(self, result: Pass) -> None:
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
        nothing = OutputManifest(job, self._instance, 0.0, ())
        try:
            known = decode(OutputManifest, self._disk.outputs.read_bytes())
        except (OSError, SpecError):
            return nothing
        return known if known.job == job else nothing

    def _save(self, manifest: OutputManifest) -> None:
        unfinished = self._disk.outputs.with_name(f"{self._disk.outputs.name}.unfinished")
        unfinished.write_bytes(encode(OutputManifest, manifest))
        os.replace(unfinished, self._disk.outputs)

    def _tell(self, text: str | None) -> None:
        if text is not None and text != self._noted:
            _log.warning(text)
            self._outbox.add_notes([text])
        self._noted = text


def save_laid_out(path: Path, work: Path) -> None:
    """Write down size and time of change of the files in `work`, before a script changes them."""
    laid_out = {file.path: (file.bytes, file.modified_ns) for file in walk_below(work)}
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(encode(dict[str, tuple[int, int]], _printable(laid_out)))
    os.replace(unfinished, path)


def load_laid_out(path: Path) -> Mapping[str, tuple[int, int]]:
    """Return what `save_laid_out` wrote; empty if it can't be read."""
    try:
        return decode(dict[str, tuple[int, int]], path.read_bytes())
    except (OSError, SpecError):
        return {}


def _printable(laid_out: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return the entries whose names JSON can have; files of other names are never outputs."""
    return {path: stamp for path, stamp in laid_out.items() if path.isprintable()}


def _told_of(result: Pass, maximum_bytes: int) -> str | None:
    left_out = result.manifest.left_out
    if not left_out:
        return None
    named = ", ".join(left_out[:_NAMED]) + (", ..." if len(left_out) > _NAMED else "")
    return (
        f"outputs are not kept: {named}; together they are above the limit of {maximum_bytes:,} "
        f"bytes or {MOST_OUTPUT_FILES:,} files, or the agent can't read them; raise "
        "outputs.limit, or name what to keep in outputs.paths"
    )
