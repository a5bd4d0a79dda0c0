"""Supervisor process of one job's lighthouse, independent of the controller.

The server is a child process. It is restarted on the same port whenever it dies, and dies with
its supervisor. SIGTERM ends both. The module imports the standard library and torchft's
compiled part only: the package torchft imports torch, which takes 1 s and 230 MB instead of
14 MB. Without torchft the server is Castor's own roster.

Usage: ``python -P -m autoscaler.lighthouse.supervisor DIRECTORY DESCRIPTOR``. The descriptor
holds the lock of the directory, which shows that the supervisor lives. The command returns as
soon as the supervisor runs.
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
from autoscaler.lighthouse.order import LighthouseDirectory, LighthouseSpec
from autoscaler.parent import end_with_parent

_QUICK_DEATH_SECONDS = 1.0


def find_torchft() -> importlib.machinery.ModuleSpec | None:
    """Return the spec of torchft's compiled module; None if torchft is not installed.

    The rest of torchft is not imported.
    """
    package = importlib.util.find_spec("torchft")
    if package is None or package.submodule_search_locations is None:
        return None
    directories = list(package.submodule_search_locations)
    return importlib.machinery.PathFinder.find_spec("_torchft", directories)


def load_torchft() -> ModuleType:
    """Return torchft's compiled module, with servers and clients of lighthouses.

    Raises:
        ModuleNotFoundError: torchft is not installed.
    """
    spec = find_torchft()
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("torchft is not installed: install castor-autoscaler[training]")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def supervise(order: LighthouseSpec, clock: Clock) -> NoReturn:
    """Restart the server whenever it dies, until SIGTERM ends this process."""
    while True:
        started_seconds = clock.monotonic()
        server = _start_server(order)
        try:
            os.waitpid(server, 0)
        except SystemExit:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            raise
        # A server that died at once would die again, for example while its port is in use.
        if clock.monotonic() - started_seconds < _QUICK_DEATH_SECONDS:
            clock.sleep(_QUICK_DEATH_SECONDS)


def _start_server(order: LighthouseSpec) -> int:
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


def _serve_quorum(order: LighthouseSpec) -> None:
    server = load_torchft().LighthouseServer(
        bind=f"{order.bind_address}:{order.port}",
        min_replicas=1,
        join_timeout_ms=round(order.join_timeout_seconds * 1000),
        heartbeat_timeout_ms=round(order.heartbeat_timeout_seconds * 1000),
    )
    signal.pause()
    server.shutdown()


def _serve_roster(order: LighthouseSpec) -> None:
    import asyncio

    from autoscaler.lighthouse.server import RosterServer

    asyncio.run(RosterServer(order).serve())


def main() -> None:
    """Detach a supervisor process, write its id to the lock file and return."""
    directory, lock = LighthouseDirectory(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    order = directory.order
    if order is None:
        raise SystemExit(f"{directory.path} has no order.json: the host writes it first")
    if supervisor := os.fork():
        os.ftruncate(lock, 0)
        os.write(lock, str(supervisor).encode())
        return
    os.chdir(directory.path)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervise(order, SystemClock())


if __name__ == "__main__":
    main()
