"""TCP proxy on the loopback with a delay in each direction."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

_PIECE_BYTES = 1 << 16


class DelayProxy:
    """Proxy from `port` to `target_port` of the same host.

    `delay_seconds` may change at any time and applies to data read from then on.
    """

    def __init__(self, target_port: int, host: str = "127.0.0.1") -> None:
        self.delay_seconds = 0.0
        self.port = 0
        self._target = (host, target_port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        """Listen on a free port."""
        self._thread.start()
        starting = asyncio.start_server(self._connect, self._target[0], 0)
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = int(server.sockets[0].getsockname()[1])
        return self

    def __exit__(self, *error: object) -> None:
        """Stop, and cancel open connections."""
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection in both directions until both sides close."""
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        # The streams would log the cancellation at the end.
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._forward(reader, target_writer), self._forward(target_reader, writer)
            )

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read pieces, each with its due time; an empty piece ends the stream."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(self._send(pieces, writer))
        piece = b"?"
        while piece:
            try:
                piece = await reader.read(_PIECE_BYTES)
            except OSError:
                piece = b""
            pieces.put_nowait((self._loop.time() + self.delay_seconds, piece))
        await sending

    async def _send(
        self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        """Write each piece when it is due; the empty piece closes the connection."""
        while True:
            due_seconds, piece = await pieces.get()
            await asyncio.sleep(due_seconds - self._loop.time())
            with suppress(OSError):
                if not piece:
                    writer.close()
                    return
                writer.write(piece)
                await writer.drain()
