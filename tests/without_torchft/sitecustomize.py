"""Blocked import of torchft, for child processes of tests with TESTS_WITHOUT_TORCHFT=1."""

from __future__ import annotations

import sys

sys.modules["torchft"] = None  # type: ignore[assignment]
