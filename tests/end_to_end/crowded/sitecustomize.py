"""Cores for instances of the local cloud beyond those of this machine, for tests of many of them.

Python imports this module at its start if PYTHONPATH names this directory. Children get the same
PYTHONPATH, whatever environment they are given.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

_set_affinity = os.sched_setaffinity
_start = subprocess.Popen.__init__
_CORES = 8
_HERE = os.path.dirname(os.path.abspath(__file__))


def _share_cores(pid: int, cores: Any) -> None:
    _set_affinity(pid, {core % (os.cpu_count() or 1) for core in cores})


def _start_here(self: Any, *arguments: Any, **options: Any) -> None:
    if options.get("env") is not None:
        options["env"] = {**options["env"], "PYTHONPATH": _HERE}
    _start(self, *arguments, **options)


os.sched_setaffinity = _share_cores
os.sched_getaffinity = lambda pid: set(range(_CORES))
subprocess.Popen.__init__ = _start_here  # type: ignore[method-assign]
