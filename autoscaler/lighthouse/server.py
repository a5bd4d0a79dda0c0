"""Serves one job's roster, where torchft can't be had. Only the standard library."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

from autoscaler.domain.roster import Notice, call_from, line_of
from autoscaler.lighthouse.order import LighthouseOrder
from autoscaler.lighthouse.roster import Roster


class RosterServer:
    """Answers the members of one job until its process ends.

    A member is lost when its connection ends, or when nothing was heard for the heartbeat
    timeout. At its start the server answers nobody for the join timeout: members that an earlier
    server had will be back by then.
    """

    def __init__(self, order: LighthouseOrder) -> None:
        self._order = order
        self._roster = Roster(incarnation=secrets.token_hex(4))
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._noticed: dict[asyncio.StreamWriter, Notice] = {}
        self._is_open = False

    async def serve(self) -> None:
        """Listen and answer.

        Raises:
            OSError: the port is another's.
        """
        order = self._order
        server = await asyncio.start_server(self._attend, order.bind_address, order.port)
        asyncio.get_running_loop().call_later(order.join_timeout_seconds, self._open)
        async with server:
            await server.serve_forever()

    def _open(self) -> None:
        self._is_open = True
        self._answer()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One member's connection."""
        name = None
        # Whatever ends it, a line that makes no sense too: the member may connect again.
        with suppress(OSError, TimeoutError, ValueError, KeyError, TypeError):
            while line := await self._next_line(reader):
                call = call_from(line)
                if name is None:
                    name = call.name
                    self._roster.forget(name)
                    self._writers[name] = writer
                elif call.name != name:
                    break
                self._roster.hear(call)
                self._answer()
        if name is not None and self._writers.get(name) is writer:
            del self._writers[name]
            self._roster.forget(name)
            self._answer()
        self._noticed.pop(writer, None)
        writer.close()

    async def _next_line(self, reader: asyncio.StreamReader) -> bytes:
        timeout_seconds = self._order.heartbeat_timeout_seconds
        return await asyncio.wait_for(reader.readline(), timeout_seconds)

    def _answer(self) -> None:
        if not self._is_open:
            return
        notice = Notice(self._roster.names)
        for writer in self._writers.values():
            if self._noticed.get(writer) != notice:
                self._noticed[writer] = notice
                writer.write(line_of(notice))
        for name, order in self._roster.orders().items():
            self._writers[name].write(line_of(order))
