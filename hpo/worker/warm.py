"""Process that imports the packages of earlier workers and forks a worker for each trial.

A forked worker differs from a fresh one only in the time at which installed packages are imported.
Modules of the job's own files are imported by each worker from its own directory. If an import has
started threads or CUDA, forking is unsafe and the worker starts as a fresh process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from autoscaler.clock import SystemClock
from autoscaler.domain.trial import AHEAD_VARIABLE, IMPORTS_VARIABLE, WORKER_COMMAND
from hpo.interval import Interval

_INSTALLED = ("/site-packages/", "/dist-packages/")
_POLL_SECONDS = 0.5
_attempted_imports: set[str] = set()


def wait_for_order() -> None:
    """Return at once in an ordinary worker; in a warm process, return in each forked worker.

    Raises:
        SystemExit: no more workers are wanted.
    """
    if os.environ.pop(AHEAD_VARIABLE, None) is None:
        return
    os.chdir("/")  # the first trial's directory is removed with the trial
    connection = socket.socket(fileno=os.dup(0))
    _detach_stdin()
    poll_interval = Interval(_POLL_SECONDS, SystemClock())
    poll_interval.is_due()
    with connection, connection.makefile("rb") as orders:
        while order := _next_order(connection, orders, poll_interval):
            is_safe = _is_safe_to_fork()
            gc.freeze()  # keeps the worker's collector from copying every page it visits
            if _is_forked(connection):
                _become_worker(json.loads(order), is_safe)
                return
    raise SystemExit(0)


def note_imports() -> None:
    """Record the installed modules that this worker has imported, for later workers."""
    path = os.environ.get(IMPORTS_VARIABLE)
    if path is None:
        return
    names = [name for name, module in list(sys.modules.items()) if _is_installed(module)]
    if _recorded_modules().keys() >= set(names):
        return
    unfinished = Path(f"{path}.{os.getpid()}")
    with suppress(OSError):  # the list only saves time
        unfinished.write_text("\n".join(names))
        unfinished.replace(path)


def run_and_leave(main: Callable[[], None]) -> NoReturn:
    """Run a process's `main` and exit without the interpreter's finalization.

    Finalization takes a second or more after many imports. Exit handlers and non-daemon threads
    still complete first.
    """
    code = 0
    try:
        main()
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:
        traceback.print_exc()
        code = 1
    with suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads
        atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _next_order(connection: socket.socket, orders: Any, poll_interval: Interval) -> bytes:
    """Return the next order; empty at the end of input.

    Meanwhile import the recorded modules at intervals, also when orders arrive faster.
    """
    while not select.select([connection], [], [], poll_interval.left_seconds)[0]:
        if poll_interval.is_due():
            _import_recorded_modules()
    text: bytes = orders.readline()
    return text


def _is_forked(connection: socket.socket) -> bool:
    """Fork twice; return True in the worker, whose parent exits, and False in the warm process."""
    parent = os.fork()
    if parent:
        os.waitpid(parent, 0)
        return False
    worker = os.fork()
    if worker:
        connection.sendall(f"{worker}\n".encode())
        os._exit(0)
    return True


def _is_safe_to_fork() -> bool:
    """Return whether this is the only thread and no CUDA device is in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    uses_cuda = cuda is not None and cuda.is_initialized()
    return len(os.listdir("/proc/self/task")) == 1 and not uses_cuda


def _become_worker(order: dict[str, Any], is_safe: bool) -> None:
    """Apply the environment and directory of an order to this process."""
    os.setsid()
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    if not is_safe:
        os.execvpe(WORKER_COMMAND[0], WORKER_COMMAND, order["environment"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python reseeds its own generator in a fork


def _detach_stdin() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _import_recorded_modules() -> None:
    """Import the recorded modules that are not imported yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _recorded_modules():
            if name in sys.modules or name in _attempted_imports:
                continue
            _attempted_imports.add(name)
            with suppress(Exception):  # an objective that needs the module raises the error itself
                importlib.import_module(name)


def _recorded_modules() -> dict[str, None]:
    """Return the recorded module names, in the order of their import."""
    try:
        return dict.fromkeys(Path(os.environ.get(IMPORTS_VARIABLE, "")).read_text().split("\n"))
    except OSError:
        return {}


def _is_installed(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and any(place in file for place in _INSTALLED)
