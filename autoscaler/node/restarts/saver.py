"""Watch of a restartable job's checkpoints: copies each new one, while the command runs and after.

Only the instance that leads the job's world watches. In a directory that all instances share,
matches are observed and not copied.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError
from autoscaler.domain.restart import RestartSpec
from autoscaler.node.restarts.matches import Match, Pattern
from autoscaler.node.restarts.saves import Changed, Saves, StartName

_log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 2.0
_SCAN_SECONDS: Final = 1.0
_SIGNAL_SECONDS: Final = 1.0
"""Time within which SIGTERM reaches the command and ends one that does not handle it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Checkpoint that outlives the instances.

    `name` is different for each one. Copying it took `seconds`.
    """

    name: str
    modified_seconds: float
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """End of the command: since when it was told to stop, or had stopped by itself.

    `is_clean`: it exited with status 0, not told to. `left_in_time`: it was told to and left
    before it was killed.
    """

    stopped_seconds: float
    is_clean: bool = False
    left_in_time: bool = False

    def has_finished(self, match: Match) -> bool:
        """Return whether the command finished a match, rather than ended while writing it.

        A command that does not handle SIGTERM ends at once. So a match that it changed at that
        moment may be cut off, and one that it changed later is whole.
        """
        modified_seconds = match.modified_ns / 1e9
        if self.is_clean or modified_seconds <= self.stopped_seconds - QUIET_SECONDS:
            return True
        return self.left_in_time and modified_seconds > self.stopped_seconds + _SIGNAL_SECONDS


@dataclass(slots=True)
class Watched:
    """One start of the command, whose matches are watched.

    `began_ns` is when it started; older matches are not new. `saves` is None in a shared
    directory. `restored_ns` is the time of the save that it began from, 0 for none. `latest` is
    the newest checkpoint so far; None before the first.
    """

    start: StartName
    restart: RestartSpec
    pattern: Pattern
    saves: Saves | None
    began_ns: int
    kept: int = 2
    restored_ns: int = 0
    user: int | None = None
    latest: Saved | None = None
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_over: bool = False


class Saver:
    """Saver of new matches, one at a time in a thread of its own.

    `on_news` is called after each new checkpoint, and after the last scan. `note` gets each error,
    once in succession.
    """

    def __init__(
        self, clock: Clock, on_news: Callable[[], None], note: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._on_news = on_news
        self._note = note
        self._noted: str | None = None
        self._watched: Watched | None = None
        self._thread: threading.Thread | None = None
        self._next_seconds = 0.0

    @property
    def latest(self) -> Saved | None:
        """Newest checkpoint of the watched start; None before the first."""
        return None if self._watched is None else self._watched.latest

    @property
    def is_busy(self) -> bool:
        """Whether a scan or a copy is in progress."""
        return self._thread is not None and self._thread.is_alive()

    def watch(self, watched: Watched | None) -> None:
        """Watch another start; None watches nothing. No scan may be in progress."""
        self._watched = watched
        self._next_seconds = 0.0

    @property
    def watches(self) -> StartName | None:
        """Start that is watched; None if none is."""
        return None if self._watched is None else self._watched.start

    def turn(self) -> None:
        """Scan for new matches if that is due. Call regularly while the command runs."""
        now_seconds = self._clock.monotonic()
        if self._watched is None or self.is_busy or now_seconds < self._next_seconds:
            return
        self._next_seconds = now_seconds + _SCAN_SECONDS
        self._begin(self._watched, None)

    def is_settled(self, end: CommandEnd) -> bool:
        """Return whether the last matches are saved, after the command ended.

        The first call starts the last scan.
        """
        watched = self._watched
        if watched is None:
            return True
        if self.is_busy:
            return False
        if watched.is_over:
            return True
        watched.is_over = True
        self._begin(watched, end)
        return False

    def _begin(self, watched: Watched, end: CommandEnd | None) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(watched, end), name="castor-saves", daemon=True
        )
        self._thread.start()

    def _run(self, watched: Watched, end: CommandEnd | None) -> None:
        latest = watched.latest
        try:
            self.scan(watched, end)
        except Changed:
            pass  # the next scan finds it again
        except (CastorError, OSError) as error:
            self._add_note(f"the latest checkpoint is not saved: {error}")
        except Exception as error:  # thread boundary: a file system may fail in unknown ways
            _log.exception("a checkpoint could not be saved")
            self._add_note(f"the latest checkpoint is not saved: {type(error).__name__}: {error}")
        if watched.latest is not latest or watched.is_over:
            self._on_news()

    def scan(self, watched: Watched, end: CommandEnd | None = None) -> None:
        """Save the newest match that is complete and not saved yet, if there is one.

        `end` is None while the command runs.

        Raises:
            Changed: the match changed while it was copied.
            ProviderError, OSError: it can't be copied.
        """
        matches = watched.pattern.matches(watched.user)
        present = {match.name: (match.modified_ns, match.bytes) for match in matches}
        complete = [
            match
            for match in matches
            if is_new(match, watched)
            and (self._is_quiet(match, watched) if end is None else end.has_finished(match))
        ]
        watched.seen = present
        if complete:
            self._save(complete[-1], watched)
            self._noted = None

    def _is_quiet(self, match: Match, watched: Watched) -> bool:
        """Return whether a match was the same at the last scan, and is old enough."""
        is_same = watched.seen.get(match.name) == (match.modified_ns, match.bytes)
        return is_same and self._clock.now() - match.modified_ns / 1e9 >= QUIET_SECONDS

    def _save(self, match: Match, watched: Watched) -> None:
        began_seconds = self._clock.monotonic()
        name = f"{match.name}@{match.modified_ns}"
        if watched.saves is not None:
            watched.saves.save(match, watched.pattern.root, watched.start, watched.kept)
        seconds = self._clock.monotonic() - began_seconds
        watched.latest = Saved(name, match.modified_ns / 1e9, match.bytes, seconds)

    def _add_note(self, text: str) -> None:
        if text != self._noted:
            _log.warning(text)
            self._note(text)
        self._noted = text


def is_new(match: Match, watched: Watched) -> bool:
    """Return whether the command wrote a match after its start and after the latest checkpoint."""
    latest_ns = 0 if watched.latest is None else round(watched.latest.modified_seconds * 1e9)
    least_ns = max(watched.began_ns, watched.restored_ns)
    is_latest = watched.latest is not None and watched.latest.name.endswith(
        f"{match.name}@{match.modified_ns}"
    )
    return match.modified_ns > least_ns and match.modified_ns >= latest_ns and not is_latest
