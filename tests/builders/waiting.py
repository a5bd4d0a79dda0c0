"""Waiting for processes and threads that a test has started."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], description: str = "", seconds: float = 60.0) -> Any:
    """Return the first true value of a condition; fail after `seconds` with the `description`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {description}")
