"""Training session inside another task, such as a trial, which reports the session's end itself.

The session ends without a message to the agent. No checkpoint is kept between an epoch's last
step and the code that follows it in the loop over `epochs()`. A job resumed from that state would
lack the results that this code reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class WatchedSession(Protocol):
    """Interface of a session for its enclosing task; implemented by `TrainingSession`."""

    @property
    def has_last_word(self) -> bool:
        """Whether this rank reports how the session ended."""
        ...


class Watch:
    """The session of an enclosing task, once opened. Its checkpoints are in a directory `name`.

    `on_epochs` is called with the number of epochs once it is known.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: WatchedSession | None = None
        self.on_epochs: Callable[[int], None] = lambda count: None

    def see(self, session: WatchedSession) -> None:
        """Register the opened session.

        Raises:
            RuntimeError: a session is registered already.
        """
        if self.session is not None:
            raise RuntimeError("an objective has one session: train other models without session")
        self.session = session


_current_watch: Watch | None = None


@contextmanager
def watched(name: str) -> Iterator[Watch]:
    """Watch for a session that any thread of this process opens within the context."""
    global _current_watch
    _current_watch = watch = Watch(name)
    try:
        yield watch
    finally:
        _current_watch = None


def present_watch() -> Watch | None:
    """Return the watch for a session opened now; None outside of `watched`."""
    return _current_watch
