"""Analysis of a failed start from its log."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoscaler.domain.report import Failure, FailureReason
from autoscaler.failures.causes import diagnose
from autoscaler.failures.evidence import read_evidence
from autoscaler.failures.signature import signature
from autoscaler.node.files.logs import last_lines, write_line
from autoscaler.node.instance import Instance

_KERNEL_STATISTICS: Final = Path("/proc/vmstat")
_LINES_READ = 200
_LINES_REPORTED = 40
# Prefix of each line if several ranks run; not part of the script's output.
_RANK_PREFIX = re.compile(r"^\[rank \d+\] ?")


def post_mortem(
    instance: Instance,
    attempt: int,
    log_offset: int,
    exit_code: int,
    reason: FailureReason | None = None,
    kills_before: int | None = None,
) -> Failure:
    """Return the failure of a start, from its output in the log after `log_offset` bytes.

    The last lines are the script's own, without the report of torchrun. `reason` is the one that
    the training process itself reported, if it did. `kills_before` is `memory_kills()` at the
    start; None: unknown.
    """
    printed = last_lines(instance.disk.log, log_offset, _LINES_READ)
    lines = tuple(_RANK_PREFIX.sub("", line) for line in printed)
    diagnosis = diagnose(exit_code, lines, reason, _kills_since(kills_before))
    return Failure(
        instance=instance.name,
        attempt=attempt,
        exit_code=exit_code,
        cause=diagnosis.cause,
        signature=signature(exit_code, lines),
        steps=0,
        last_lines=read_evidence(exit_code, lines).lines[-_LINES_REPORTED:],
        reason=reason,
        category=diagnosis.category,
    )


def _kills_since(before: int | None) -> int | None:
    now = memory_kills()
    return None if before is None or now is None else now - before


def memory_kills(statistics: Path = _KERNEL_STATISTICS) -> int | None:
    """Return how many processes the kernel has ended for lack of memory, ever; None: unknown."""
    with suppress(OSError, ValueError):
        for line in statistics.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def caused_failure(instance: Instance, attempt: int, log_offset: int, cause: str) -> Failure:
    """Return the failure of a start whose cause is known, and append the cause to the log."""
    with suppress(OSError):  # the cause may be that nothing can be written
        write_line(instance.disk.log, cause)
    failure = post_mortem(instance, attempt, log_offset, exit_code=1)
    category = diagnose(1, [cause]).category
    return replace(failure, cause=cause, signature=signature(1, [cause]), category=category)
