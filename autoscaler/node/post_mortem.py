"""What a start that failed left behind, read."""

from __future__ import annotations

from autoscaler.domain.report import Failure
from autoscaler.failures.classify import classify
from autoscaler.failures.signature import signature
from autoscaler.node.instance import Instance
from autoscaler.node.logs import last_lines

_LINES_READ = 200
_LINES_TOLD = 40


def post_mortem(instance: Instance, attempt: int, log_offset: int, exit_code: int) -> Failure:
    """The failure of a start that printed what is in the log from `log_offset` on."""
    lines = last_lines(instance.disk.log, log_offset, _LINES_READ)
    return Failure(
        instance=instance.name,
        attempt=attempt,
        exit_code=exit_code,
        cause=classify(exit_code, lines).words,
        signature=signature(exit_code, lines),
        steps=0,
        last_lines=lines[-_LINES_TOLD:],
    )
