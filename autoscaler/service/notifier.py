"""Waiting for what another request brings, without holding a thread."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

Value = TypeVar("Value")


class Notifier:
    """One bell for each name: who waits for it looks again when it rings."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    def ring(self, name: str) -> None:
        """Let those who wait look again. To be called in the event loop."""
        for event in self._listening.get(name, ()):
            event.set()

    def ring_from_afar(self, name: str) -> None:
        """The same from any thread."""
        if self._loop is not None:  # otherwise nobody has ever listened
            self._loop.call_soon_threadsafe(self.ring, name)

    async def first(
        self, name: str, look: Callable[[], tuple[Value, ...]], wait_seconds: float
    ) -> tuple[Value, ...]:
        """What `look`, which may block, finds as soon as it finds something.

        Nothing if it finds nothing for so long.
        """
        self._loop = asyncio.get_running_loop()
        event = asyncio.Event()
        self._listening[name].add(event)
        try:
            found = await run_in_threadpool(look)
            async with asyncio.timeout(wait_seconds):
                while not found:
                    await event.wait()
                    event.clear()
                    found = await run_in_threadpool(look)
            return found
        except TimeoutError:
            return ()
        finally:
            self._listening[name].discard(event)
            if not self._listening[name]:
                del self._listening[name]
