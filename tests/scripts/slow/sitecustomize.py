"""Slow steps of every session in this process, until the file named by SLOW_UNTIL exists.

With PAUSE instead, a script's own pauses of exactly so many seconds end with that file.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULE = "autoscaler.training.training_session"
STEP_SECONDS = 0.5


class SlowSteps(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of the module of sessions, which makes the steps of the loaded module slow."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        self._loader = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        session: Any = module.TrainingSession  # type: ignore[attr-defined]
        step = session.step

        def slow_step(job: Any, *arguments: Any, **options: Any) -> Any:
            result = step(job, *arguments, **options)
            if not os.path.exists(os.environ["SLOW_UNTIL"]):
                time.sleep(STEP_SECONDS)
            return result

        session.step = slow_step


def skip_pauses(pause_seconds: float) -> None:
    """Let a sleep of exactly so many seconds return at once when the file exists."""
    sleep = time.sleep

    def sleep_unless_hurried(seconds: float) -> None:
        if seconds != pause_seconds or not os.path.exists(os.environ["SLOW_UNTIL"]):
            sleep(seconds)

    time.sleep = sleep_unless_hurried


if "PAUSE" in os.environ:
    skip_pauses(float(os.environ["PAUSE"]))
elif "SLOW_UNTIL" in os.environ:
    sys.meta_path.insert(0, SlowSteps())
