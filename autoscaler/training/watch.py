"""A training session that is part of something else, such as a trial, whose end others tell.

It ends without a word to the agent. And no state of it is kept in which an epoch's last batch has
been learnt from, but what follows in the loop over `epochs()` is still to be done: what is told
there of the epoch would be missing where the job goes on from that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class WatchedSession(Protocol):
    """What others ask of a session; `TrainingSession` is one."""

    @property
    def has_last_word(self) -> bool:
        """This rank is the one to say how it ended."""
        ...


class Watch:
    """The session that was opened, once one is. Its checkpoints go to a directory called `name`.

    `on_epochs` is told how many epochs there are, once it is known.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: WatchedSession | None = None
        self.on_epochs: Callable[[int], None] = lambda count: None

    def see(self, session: WatchedSession) -> None:
        """Take note of a session.

        Raises:
            RuntimeError: there was one before.
        """
        if self.session is not None:
            raise RuntimeError("an objective has one session: train what else it needs without")
        self.session = session


_present: Watch | None = None


@contextmanager
def watched(name: str) -> Iterator[Watch]:
    """Watch for a session that is opened inside, by any thread of this process."""
    global _present
    _present = watch = Watch(name)
    try:
        yield watch
    finally:
        _present = None


def present_watch() -> Watch | None:
    """The watch that a session which is opened now is under."""
    return _present
