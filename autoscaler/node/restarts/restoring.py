"""Preparation of one start of a restartable job: its instances take the same checkpoint."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.back_off import BackOff
from autoscaler.domain.errors import CastorError, NotFound
from autoscaler.node.restarts.matches import Pattern
from autoscaler.node.restarts.saves import Saves, StartName

_log = logging.getLogger(__name__)

_ASK_SECONDS = 0.5
# Questions for the leader's choice before people are told: for a minute.
_MOST_QUESTIONS = 120


@dataclass(frozen=True, slots=True)
class Restore:
    """Request to bring an instance to the checkpoint of a start.

    The instance that `leads` chooses it. `user` owns the files. Matches from before `since_ns`
    were laid out with the job's files. `saves` is None in a shared directory.
    """

    start: StartName
    leads: bool
    pattern: Pattern
    saves: Saves | None
    user: int
    since_ns: int


class Restoring:
    """Thread that restores the checkpoint of a start, and repeats what fails.

    `on_news` is called at the end. `note` gets the first error.
    """

    def __init__(
        self, request: Restore, on_news: Callable[[], None], note: Callable[[str], None]
    ) -> None:
        self.request = request
        self.restored_ns = 0
        self.is_done = False
        self._on_news = on_news
        self._note = note
        self._is_noted = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="castor-restore", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Request the end of the thread, because the start is no longer wanted."""
        self._stopped.set()

    def _run(self) -> None:
        back_off, questions = BackOff(), 0
        while not self._stopped.is_set():
            try:
                self.restored_ns = restored(self.request)
                self.is_done = True
                break
            except NotFound as error:  # the leader has not chosen yet
                questions += 1
                if questions >= _MOST_QUESTIONS:
                    self._add_note(error)
                self._stopped.wait(_ASK_SECONDS)
            except (CastorError, OSError) as error:
                self._add_note(error)
                self._stopped.wait(back_off.next_seconds())
        self._on_news()

    def _add_note(self, error: Exception) -> None:
        if not self._is_noted:
            _log.warning("the checkpoint is not restored yet: %s", error)
            self._note(f"the checkpoint is not restored yet: {error}")
        self._is_noted = True


def restored(request: Restore) -> int:
    """Restore the chosen checkpoint; return its time in nanoseconds, 0 for the beginning.

    Raises:
        NotFound: the leader has not chosen yet, or the checkpoint is gone.
        ProviderError, OSError, SpecError: it can't be read or written.
    """
    saves = request.saves
    if saves is None:
        return 0
    choice = saves.choose(request.start) if request.leads else saves.chosen(request.start)
    saves.restore(choice.label, request.pattern, request.user, request.since_ns)
    return 0 if choice.label is None else saves.read(choice.label).modified_ns
