"""A process that has imported what trials need, and forks a worker for each.

What differs from a worker that is started anew is only when installed packages are imported.
Modules of the job's own files are imported by each worker, from its own fresh directory. Where
forking is not safe, for a package has started threads or CUDA as it was imported, the worker is
started anew after all.
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
_LOOK_SECONDS = 0.5
_tried: set[str] = set()


def await_order() -> None:
    """Return at once in a process that is a worker; otherwise in each that is forked for one.

    Raises:
        SystemExit: no more are wanted.
    """
    if os.environ.pop(AHEAD_VARIABLE, None) is None:
        return
    os.chdir("/")  # the first trial's directory goes with it
    line = socket.socket(fileno=os.dup(0))
    _read_nothing()
    looks = Interval(_LOOK_SECONDS, SystemClock())
    looks.is_due()
    with line, line.makefile("rb") as orders:
        while order := _next_order(line, orders, looks):
            is_safe = _is_safe_to_fork()
            gc.freeze()  # or the worker's collector would copy every page that it looks at
            if _is_forked(line):
                _become_worker(json.loads(order), is_safe)
                return
    raise SystemExit(0)


def note_imports() -> None:
    """Note which installed modules this worker has imported, for those after it."""
    place = os.environ.get(IMPORTS_VARIABLE)
    if place is None:
        return
    found = [name for name, module in list(sys.modules.items()) if _is_installed(module)]
    if _known().keys() >= set(found):
        return
    unfinished = Path(f"{place}.{os.getpid()}")
    with suppress(OSError):  # it is done for speed only
        unfinished.write_text("\n".join(found))
        unfinished.replace(place)


def run_and_leave(main: Callable[[], None]) -> NoReturn:
    """Run a process's `main` and end the process, without taking the interpreter to pieces.

    That takes a second where much was imported, and longer where it was forked. What was
    registered for the end, and threads that are waited for, come first as ever.
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


def _next_order(line: socket.socket, orders: Any, looks: Interval) -> bytes:
    """Return the next order, empty for none.

    Until it is there, import what workers have imported, also where orders follow each other
    faster than the notes are looked at.
    """
    while not select.select([line], [], [], looks.left_seconds)[0]:
        if looks.is_due():
            _import_as_noted()
    text: bytes = orders.readline()
    return text


def _is_forked(line: socket.socket) -> bool:
    """Whether this is the worker's process. Nobody waits for it here: its parent ends at once."""
    parent = os.fork()
    if parent:
        os.waitpid(parent, 0)
        return False
    worker = os.fork()
    if worker:
        line.sendall(f"{worker}\n".encode())
        os._exit(0)
    return True


def _is_safe_to_fork() -> bool:
    """Nothing is lost in a fork: this is the only thread, and no device is in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    uses_cuda = cuda is not None and cuda.is_initialized()
    return len(os.listdir("/proc/self/task")) == 1 and not uses_cuda


def _become_worker(order: dict[str, Any], is_safe: bool) -> None:
    """Be as if started in the environment and directory of the order."""
    os.setsid()
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    if not is_safe:
        os.execvpe(WORKER_COMMAND[0], WORKER_COMMAND, order["environment"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own is seeded anew in each fork


def _read_nothing() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _import_as_noted() -> None:
    """Import what is noted and not here yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _known():
            if name in sys.modules or name in _tried:
                continue
            _tried.add(name)
            with suppress(Exception):  # the objective will meet it, or need not
                importlib.import_module(name)


def _known() -> dict[str, None]:
    """The names that are noted, in the order in which they were imported."""
    try:
        return dict.fromkeys(Path(os.environ.get(IMPORTS_VARIABLE, "")).read_text().split("\n"))
    except OSError:
        return {}


def _is_installed(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and any(place in file for place in _INSTALLED)
