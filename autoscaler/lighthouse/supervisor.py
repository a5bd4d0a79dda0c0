"""Keeps one job's lighthouse alive, whatever becomes of the controller.

The server is a child that is started again, on the same port, as often as it dies; it dies with
its supervisor. SIGTERM ends both. Only the standard library, and torchft's compiled half: the
package itself would import torch, which takes a second and 230 MB where 14 MB do. Where there is
no torchft the server is a roster of our own.

Started as ``python -P -m autoscaler.lighthouse.supervisor DIRECTORY DESCRIPTOR``; the descriptor
holds the lock of the directory and thereby says that the supervisor lives. The command returns
once it does.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.order import LighthouseDirectory, LighthouseOrder
from autoscaler.parent import end_with_parent

_QUICK_DEATH_SECONDS = 1.0


def find_torchft() -> importlib.machinery.ModuleSpec | None:
    """Where torchft's compiled half is, found without importing the rest; None if nowhere."""
    package = importlib.util.find_spec("torchft")
    if package is None or package.submodule_search_locations is None:
        return None
    places = list(package.submodule_search_locations)
    return importlib.machinery.PathFinder.find_spec("_torchft", places)


def load_torchft() -> ModuleType:
    """Torchft's compiled half: servers and clients of lighthouses.

    Raises:
        ModuleNotFoundError: torchft is not installed.
    """
    spec = find_torchft()
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("torchft is not installed: install castor-autoscaler[training]")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def supervise(order: LighthouseOrder, clock: Clock) -> NoReturn:
    """Keep a server running until SIGTERM ends this process."""
    while True:
        started_seconds = clock.monotonic()
        server = _start_server(order)
        try:
            os.waitpid(server, 0)
        except SystemExit:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            raise
        # One that dies at once will again; its port may be another's for the moment.
        if clock.monotonic() - started_seconds < _QUICK_DEATH_SECONDS:
            clock.sleep(_QUICK_DEATH_SECONDS)


def _start_server(order: LighthouseOrder) -> int:
    supervisor = os.getpid()
    if server := os.fork():
        return server
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(supervisor)
    if order.engine is Engine.ROSTER:
        _serve_roster(order)
    else:
        _serve_quorum(order)
    os._exit(0)


def _serve_quorum(order: LighthouseOrder) -> None:
    running = load_torchft().LighthouseServer(
        bind=f"{order.bind_address}:{order.port}",
        min_replicas=1,
        join_timeout_ms=round(order.join_timeout_seconds * 1000),
        heartbeat_timeout_ms=round(order.heartbeat_timeout_seconds * 1000),
    )
    signal.pause()
    running.shutdown()


def _serve_roster(order: LighthouseOrder) -> None:
    import asyncio

    from autoscaler.lighthouse.server import RosterServer

    asyncio.run(RosterServer(order).serve())


def main() -> None:
    """Detach from whoever started this process, and supervise."""
    directory, lock = LighthouseDirectory(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    order = directory.order
    if order is None:
        raise SystemExit(f"{directory.path} holds no order: the host writes it first")
    if supervisor := os.fork():
        os.ftruncate(lock, 0)
        os.write(lock, str(supervisor).encode())
        return
    os.chdir(directory.path)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervise(order, SystemClock())


if __name__ == "__main__":
    main()
