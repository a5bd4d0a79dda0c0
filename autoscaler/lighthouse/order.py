"""Settings and state of one lighthouse as files of a directory.

    order.json   address, engine and timeouts of the server, written by the host before a start
    lock         locked by the supervisor while it lives; holds its process id
    log          output of supervisor and server

Imports only the standard library and the domain, so that supervisors start fast.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autoscaler.domain.training import Engine

# Former names of engines, in the orders of servers that an earlier version started.
_FORMER_NAMES = {"restart": Engine.ROSTER}


@dataclass(frozen=True, slots=True)
class LighthouseSpec:
    """Settings of one server. Port and engine stay the same for the job's lifetime."""

    bind_address: str
    port: int
    join_timeout_seconds: float
    heartbeat_timeout_seconds: float
    engine: Engine = Engine.QUORUM

    @property
    def address(self) -> str:
        """The URL at which trainers reach the server; the scheme names the engine."""
        scheme = "http" if self.engine is Engine.QUORUM else self.engine.value
        return f"{scheme}://{self.bind_address}:{self.port}"


class LighthouseDirectory:
    """Files of one lighthouse."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.log = path / "log"
        self._order = path / "order.json"
        self._unfinished = path / "order.unfinished"

    @property
    def order(self) -> LighthouseSpec | None:
        """The settings of the server; None if no order was written.

        Raises:
            ValueError: `order.json` is not an order of this version.
        """
        file = self._order
        try:
            order = LighthouseSpec(**json.loads(file.read_text()))
            return replace(order, engine=Engine(_FORMER_NAMES.get(order.engine, order.engine)))
        except FileNotFoundError:
            return None
        except TypeError as error:
            raise ValueError(f"{file} is not an order of this version: {error}") from error

    def write_order(self, order: LighthouseSpec) -> None:
        """Write the order atomically."""
        with self._unfinished.open("w") as file:
            json.dump(asdict(order), file)
            file.flush()
            os.fsync(file.fileno())
        self._unfinished.rename(self._order)

    def remove(self) -> None:
        """Remove the lighthouse's files, and the directory if it is empty then.

        Other files stay.
        """
        for path in (self._unfinished, self._order, self.log, self.lock):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    @property
    def supervisor(self) -> int | None:
        """The id of the process that holds the lock; None if none does.

        Only its death frees the lock.
        """
        try:
            with self.lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read())
        except FileNotFoundError:
            pass
        return None
