"""Validation of restartable jobs: their own keys, and those of sessions that they can't use."""

from __future__ import annotations

from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.paths import relative_names, require_absolute_path
from autoscaler.domain.restart import RestartSpec, progress_pattern
from autoscaler.domain.rules import LONGEST_SECONDS, require_line, require_number, require_positive
from autoscaler.domain.text import quoted

_LONGEST_PATTERN: Final = 1_000
_LONGEST_GRACE_SECONDS: Final = 1_800.0
_WITHOUT_SESSION: Final = "needs a session (kind: session): leave it out"


def require_valid_restart(spec: JobSpec) -> None:
    """Check a job with `restart`; other jobs always pass.

    Raises:
        SpecError: as `require_valid_job`.
    """
    restart = spec.restart
    if restart is None:
        return
    _require_pattern(restart)
    require_number(restart.grace_seconds, "restart.grace", 0.0, _LONGEST_GRACE_SECONDS)
    require_positive(restart.wait_seconds, "restart.wait", LONGEST_SECONDS)
    if restart.progress is not None:
        progress_pattern(restart.progress)
        if spec.batch.initial is None:
            raise SpecError(
                "is required with restart.progress, because speeds are per step: write the "
                "examples of one step over all devices, like {initial: 256, fixed: true}",
                "batch",
            )
    _require_no_session_keys(spec)
    require_restartable_bounds(restart, spec.instances)


def require_restartable_bounds(restart: RestartSpec | None, bounds: InstanceBounds) -> None:
    """Check that a job without known progress has one size; any other job always passes.

    Raises:
        SpecError: as `require_valid_job`.
    """
    if restart is None or restart.progress is not None or bounds.minimum == bounds.maximum:
        return
    raise SpecError(
        f"min: {bounds.minimum} is below max: {bounds.maximum}, but without restart.progress no "
        "size can be measured: set restart.progress, or min and max to one number",
        "instances",
    )


def _require_pattern(restart: RestartSpec) -> None:
    field, pattern = "restart.checkpoint", restart.checkpoint
    require_line(pattern, field, longest=_LONGEST_PATTERN)
    if restart.is_shared:
        require_absolute_path(pattern, field)
    else:
        relative_names(pattern, field)
    if "**" in pattern:
        raise SpecError(
            f"{quoted(pattern)}: ** is not supported: name the directories, like "
            "checkpoints/step-*",
            field,
        )


def _require_no_session_keys(spec: JobSpec) -> None:
    """Check that the job sets no key that only a session obeys."""
    if spec.study is not None:
        raise SpecError("a trial of a study can't be restartable: leave it out", "restart")
    if spec.batch.adaptive:
        raise SpecError(
            "an adaptive batch needs a session: write {initial: 256, fixed: true}", "batch"
        )
    checkpoint = spec.checkpoint
    set_keys = {
        "checkpoint.directory": checkpoint.directory,
        "checkpoint.interval": checkpoint.interval_seconds,
        "checkpoint.adopt": checkpoint.adopt,
    }
    for field, value in set_keys.items():
        if value is not None:
            raise SpecError(
                f"{_WITHOUT_SESSION}; restart.checkpoint names the files that the command saves",
                field,
            )
    if spec.parallelism.may_shard:
        raise SpecError(
            f"{_WITHOUT_SESSION}; a restartable command shards its model itself",
            "parallelism.shard",
        )
