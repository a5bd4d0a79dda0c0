"""Notifications between requests, for long polls that hold no thread."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

Value = TypeVar("Value")


class Notifier:
    """Wake-ups of long polls, by name."""

    def __init__(self) -> None:
        self._polls: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def close(self) -> None:
        """End all polls, and later ones at once; call this in the event loop."""
        self._is_closed = True
        for name in self._polls:
            self.notify(name)

    def notify(self, name: str) -> None:
        """Wake the polls of a name; call this in the event loop."""
        for event in self._polls.get(name, ()):
            event.set()

    def notify_threadsafe(self, name: str) -> None:
        """Wake the polls of a name from any thread."""
        if self._loop is not None:  # None until the first poll
            self._loop.call_soon_threadsafe(self.notify, name)

    async def wait_for(
        self, name: str, look: Callable[[], tuple[Value, ...]], wait_seconds: float
    ) -> tuple[Value, ...]:
        """Return the result of `look` once it is not empty.

        Empty after `wait_seconds` and once this notifier is closed. `look` may block; it runs in a
        thread at first and after each notification.
        """
        self._loop = asyncio.get_running_loop()
        event = asyncio.Event()
        self._polls[name].add(event)
        try:
            result = await run_in_threadpool(look)
            async with asyncio.timeout(wait_seconds):
                while not (result or self._is_closed):
                    await event.wait()
                    event.clear()
                    result = await run_in_threadpool(look)
            return result
        except TimeoutError:
            return ()
        finally:
            self._polls[name].discard(event)
            if not self._polls[name]:
                del self._polls[name]
