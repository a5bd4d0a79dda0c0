"""Command of a restartable job on one instance: its checkpoints, its progress and its starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.gang import GangPlace
from autoscaler.domain.report import CheckpointStatus, TrainingReport
from autoscaler.domain.restart import RestartSpec, progress_pattern
from autoscaler.node.files.grants import Grants
from autoscaler.node.files.logs import log_size
from autoscaler.node.instance import Instance
from autoscaler.node.restarts.log_progress import LineReader, LogProgress, RunSize
from autoscaler.node.restarts.matches import Pattern, pattern_below
from autoscaler.node.restarts.restoring import Restore, Restoring
from autoscaler.node.restarts.save_place import SaveDirectory, SavePlace, StoredSaves
from autoscaler.node.restarts.saver import CommandEnd, Saved, Saver, Watched
from autoscaler.node.restarts.saves import Saves, StartName
from autoscaler.node.state import AgentState, Prepared, Start
from autoscaler.objects import open_grant
from autoscaler.wire.messages import Assignment


class Command:
    """Checkpoints and progress of the command; does nothing for jobs with sessions.

    `on_news` is called from other threads. `note` gets messages for people.
    """

    def __init__(
        self,
        instance: Instance,
        grants: Grants,
        clock: Clock,
        on_news: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._instance = instance
        self._grants = grants
        self._clock = clock
        self._on_news = on_news
        self._note = note
        self._saver = Saver(clock, on_news, note)
        self._restoring: Restoring | None = None
        self._restored_ns = 0
        self._lines: LineReader | None = None
        self._progress: LogProgress | None = None
        self._first_examples: float | None = None
        self._reported: Saved | None = None
        self._saved_step: int | None = None

    @property
    def saved(self) -> str | None:
        """Name of the newest checkpoint of the last start here; None without one."""
        latest = self._saver.latest
        return None if latest is None else latest.name

    @property
    def steps(self) -> int:
        """Steps of the present start that its output states; at least 1 after its first line."""
        progress = self._progress
        if progress is None or progress.examples is None or self._first_examples is None:
            return 0
        return max(int((progress.examples - self._first_examples) / progress.size.batch), 1)

    def is_at_work(self, start: Start, assignment: Assignment) -> bool:
        """Return whether a running command trains, as far as its output states.

        Without a known text in its output, and on instances that do not lead, it always does.
        """
        restart = assignment.spec.restart
        if restart is None:
            return False
        return start.follows or restart.progress is None or self.steps > 0

    def is_restored(self, assignment: Assignment, prepared: Prepared, place: GangPlace) -> bool:
        """Return whether the instance has the checkpoint of the start at `place`.

        The first call for a place begins to fetch it.
        """
        restart = assignment.spec.restart
        if restart is None:
            return True
        start, restoring = _start_name(assignment, place), self._restoring
        if restoring is not None and restoring.request.start != start:
            restoring.stop()
            restoring = None
        if restoring is None:
            request = self._restore(restart, assignment, prepared, place)
            self._restoring = Restoring(request, self._on_news, self._note)
            return False
        if restoring.is_done:
            self._restored_ns = restoring.restored_ns
        return restoring.is_done

    def begin(self, state: AgentState, is_new: bool = True) -> None:
        """Watch the start in `state`; not `is_new` is one that an earlier agent began."""
        start, assignment, prepared = state.start, state.assignment, state.prepared
        restart = assignment.spec.restart
        self._lines = self._progress = self._first_examples = None
        self._reported, self._saved_step = None, None
        if self._restoring is not None:
            self._restoring.stop()
            self._restoring = None
        is_leader = start is not None and start.place is not None and start.place.leads
        if restart is None or start is None or start.place is None or not is_leader:
            if not self._saver.is_busy:
                self._saver.watch(None)
            return
        self._saver.watch(
            Watched(
                start=_start_name(assignment, start.place),
                restart=restart,
                pattern=self._pattern(restart),
                saves=self._saves(restart, assignment),
                began_ns=round(start.started_seconds * 1e9),
                kept=assignment.spec.checkpoint.keep,
                restored_ns=self._restored_ns,
                user=None if prepared is None else prepared.user,
            )
        )
        if restart.progress is not None:
            log = self._instance.disk.log
            offset = start.log_offset if is_new else log_size(log)
            self._lines = LineReader(log, offset)
            self._progress = _progress_of(restart.progress, assignment, start, start.place)

    def turn(self, start: Start | None) -> TrainingReport | None:
        """Scan for checkpoints and read the output; return a report if there is news.

        Call regularly while the command runs.
        """
        if start is None or start.has_ended:
            return None
        self._saver.turn()
        progress, now_seconds = self._progress, self._clock.now()
        if progress is None or self._lines is None:
            return None
        has_progress = progress.add(self._lines.lines(), now_seconds)
        if self._first_examples is None:
            self._first_examples = progress.examples
        latest = self._saver.latest
        is_saved = latest is not self._reported
        if progress.examples is None or not (has_progress or is_saved):
            return None
        if is_saved:
            self._reported, self._saved_step = latest, progress.steps
        return progress.report(self._checkpoint_status(latest), now_seconds)

    def is_settled(self, end: CommandEnd) -> bool:
        """Return whether the last checkpoints of the ended command are saved; as in `Saver`."""
        return self._saver.is_settled(end)

    def _checkpoint_status(self, latest: Saved | None) -> CheckpointStatus:
        if latest is None:
            return CheckpointStatus()
        return CheckpointStatus(
            step=self._saved_step, seconds=latest.seconds, bytes=latest.bytes or None
        )

    def _restore(
        self, restart: RestartSpec, assignment: Assignment, prepared: Prepared, place: GangPlace
    ) -> Restore:
        laid_out_ns = 0
        with suppress(FileNotFoundError):
            laid_out_ns = self._instance.disk.laid_out.stat().st_mtime_ns
        return Restore(
            start=_start_name(assignment, place),
            leads=place.leads,
            pattern=self._pattern(restart),
            saves=self._saves(restart, assignment),
            user=os.geteuid() if prepared.user is None else prepared.user,
            since_ns=laid_out_ns,
        )

    def _pattern(self, restart: RestartSpec) -> Pattern:
        return pattern_below(self._instance.disk.work, restart.checkpoint)

    def _saves(self, restart: RestartSpec, assignment: Assignment) -> Saves | None:
        """Return the saves of the job; None if its checkpoints are in a shared directory."""
        if restart.is_shared:
            return None
        file = self._grants.path
        place: SavePlace
        if file is None:
            place = SaveDirectory(Path(assignment.checkpoint_directory))
        else:
            place = StoredSaves(partial(open_grant, file, meter=self._grants.meter))
        return Saves(place, self._instance.disk.staged_saves)


def _start_name(assignment: Assignment, place: GangPlace) -> StartName:
    return StartName(assignment.job_number, place.generation)


def _progress_of(
    text: str, assignment: Assignment, start: Start, place: GangPlace
) -> LogProgress | None:
    batch = assignment.spec.batch.initial
    if batch is None:
        return None
    size = RunSize(
        device_kind=assignment.offer.device_kind,
        instances=place.instances,
        devices=place.instances * start.devices_used,
        batch=batch,
        total_examples=assignment.spec.total_examples,
    )
    return LogProgress(progress_pattern(text), size)
