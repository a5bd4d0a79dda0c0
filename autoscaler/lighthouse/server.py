"""Server of one job's roster, used where torchft is not installed. Standard library only."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

from autoscaler.domain.roster import Notice, call_from, line_of
from autoscaler.lighthouse.order import LighthouseSpec
from autoscaler.lighthouse.roster import Roster


class RosterServer:
    """Roster server for the members of one job.

    A member is lost when its connection ends, or after the heartbeat timeout without a message.
    For the join timeout after its start the server sends no orders, so that members of an earlier
    server can reconnect.
    """

    def __init__(self, order: LighthouseSpec) -> None:
        self._order = order
        self._roster = Roster(incarnation=secrets.token_hex(4))
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._sent_notices: dict[asyncio.StreamWriter, Notice] = {}
        self._is_open = False

    async def serve(self) -> None:
        """Listen and answer until cancelled.

        Raises:
            OSError: another program uses the port.
        """
        order = self._order
        server = await asyncio.start_server(self._serve_connection, order.bind_address, order.port)
        asyncio.get_running_loop().call_later(order.join_timeout_seconds, self._open)
        async with server:
            await server.serve_forever()

    def _open(self) -> None:
        self._is_open = True
        self._send_orders()

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve the connection of one member."""
        name = None
        # Any error ends the connection, also a malformed line: the member may connect again.
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
                self._send_orders()
        if name is not None and self._writers.get(name) is writer:
            del self._writers[name]
            self._roster.forget(name)
            self._send_orders()
        self._sent_notices.pop(writer, None)
        writer.close()

    async def _next_line(self, reader: asyncio.StreamReader) -> bytes:
        timeout_seconds = self._order.heartbeat_timeout_seconds
        return await asyncio.wait_for(reader.readline(), timeout_seconds)

    def _send_orders(self) -> None:
        if not self._is_open:
            return
        notice = Notice(self._roster.names)
        for writer in self._writers.values():
            if self._sent_notices.get(writer) != notice:
                self._sent_notices[writer] = notice
                writer.write(line_of(notice))
        for name, order in self._roster.orders().items():
            self._writers[name].write(line_of(order))
