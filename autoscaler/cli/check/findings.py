"""Findings of `castor check`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckResult(StrEnum):
    """Result of a check.

    WARNING: jobs can run, but not as the pools say. UNPROVEN: only a launch can tell.
    """

    OK = "ok"
    UNPROVEN = "unproven"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check of `subject`; `text` says what was found and the way out."""

    subject: str
    verdict: CheckResult
    text: str
