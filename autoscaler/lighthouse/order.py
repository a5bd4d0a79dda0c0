"""What the supervisor of one lighthouse is to do, as the files of a directory.

    order.json   where the server listens, and how long it waits: by the host, before it starts
    lock         locked by the supervisor as long as it lives; holds its process id
    log          what supervisor and server print

Only the standard library and the domain: the supervisor starts with it.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autoscaler.domain.training import Engine

# Orders of earlier versions, whose servers may run still, have the name before.
_RENAMED = {"restart": Engine.ROSTER}


@dataclass(frozen=True, slots=True)
class LighthouseOrder:
    """One server. Its port and its engine stay the same for the job's whole life."""

    bind_address: str
    port: int
    join_timeout_seconds: float
    heartbeat_timeout_seconds: float
    engine: Engine = Engine.QUORUM

    @property
    def address(self) -> str:
        """Where trainers reach it; the scheme says what is spoken there."""
        scheme = "http" if self.engine is Engine.QUORUM else self.engine.value
        return f"{scheme}://{self.bind_address}:{self.port}"


class LighthouseDirectory:
    """Reads and writes the files of one lighthouse."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.log = path / "log"
        self._order = path / "order.json"
        self._unfinished = path / "order.unfinished"

    @property
    def order(self) -> LighthouseOrder | None:
        """What was ordered; None if nothing was.

        Raises:
            ValueError: `order.json` is not an order of this version.
        """
        file = self._order
        try:
            order = LighthouseOrder(**json.loads(file.read_text()))
            return replace(order, engine=Engine(_RENAMED.get(order.engine, order.engine)))
        except FileNotFoundError:
            return None
        except TypeError as error:
            raise ValueError(f"{file} is not an order of this version: {error}") from error

    def write_order(self, order: LighthouseOrder) -> None:
        """Order a server; the file appears with all of it, or not at all."""
        with self._unfinished.open("w") as file:
            json.dump(asdict(order), file)
            file.flush()
            os.fsync(file.fileno())
        self._unfinished.rename(self._order)

    def remove(self) -> None:
        """Remove the lighthouse's files, and the directory if nothing else is in it.

        Files that a lighthouse does not make stay where they are.
        """
        for path in (self._unfinished, self._order, self.log, self.lock):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    @property
    def supervisor(self) -> int | None:
        """The process that holds the lock, which nothing but its death gives free."""
        try:
            with self.lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read())
        except FileNotFoundError:
            pass
        return None
