"""Short times of stalls, for a test that plants one: longer than a sum may take, which is 30 s.

Python imports this module at its start if PYTHONPATH names this directory. Children get the same
PYTHONPATH, whatever environment they are given.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from autoscaler.failures import stalls
from autoscaler.node.script import activity_meter

_start = subprocess.Popen.__init__
_PATH = os.environ["PYTHONPATH"]


def _start_here(self: Any, *arguments: Any, **options: Any) -> None:
    if options.get("env") is not None:
        options["env"] = {**options["env"], "PYTHONPATH": _PATH}
    _start(self, *arguments, **options)


subprocess.Popen.__init__ = _start_here  # type: ignore[method-assign]
stalls.LEAST_QUIET_SECONDS = 45.0  # type: ignore[misc]
activity_meter.QUIET_SECONDS = 3.0  # type: ignore[misc]
activity_meter._STEP_SECONDS = 1.0  # type: ignore[misc]
