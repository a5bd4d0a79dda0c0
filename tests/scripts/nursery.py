"""Import modules and fork programs, because the imports take seconds.

The process reads orders from standard input, one line of JSON each. It writes a line of JSON for
each process that it started and for each that ended. A program is a process in a new session that
runs the script or module as its main program and ends as a Python program does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import sys
from typing import Any

_LOOK_SECONDS = 0.02


def main() -> dict[str, Any] | None:
    """Serve until the input ends; in a forked process return its order."""
    orders = ""
    while True:
        if select.select([0], [], [], _LOOK_SECONDS)[0]:
            read = os.read(0, 1 << 16).decode()
            if not read:
                return None
            orders += read
        while "\n" in orders:
            line, _, orders = orders.partition("\n")
            order: dict[str, Any] = json.loads(line)
            pid = os.fork()
            if pid == 0:
                return order
            _tell(pid=pid)
        _tell_of_the_dead()


def _tell_of_the_dead() -> None:
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(ended=ended[0], code=os.waitstatus_to_exitcode(ended[1]))
    except ChildProcessError:
        return


def _tell(**words: int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def become(order: dict[str, Any]) -> None:
    """Run the ordered program in this process, as if it had just been started."""
    os.setsid()
    log = _new_file(order["log"])
    errors = _new_file(order["errors"]) if order["errors"] else log
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, errors)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["words"]
    program = sys.argv[0]
    if program.endswith(".py"):
        sys.path.insert(0, os.path.dirname(program))
        runpy.run_path(program, run_name="__main__")
    else:
        sys.modules.pop(program, None)
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def _new_file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # the children's collectors must not touch shared memory
    given = main()
    if given is not None:
        become(given)
