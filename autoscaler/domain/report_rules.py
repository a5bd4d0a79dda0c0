"""Validation of jobs' reports: invalid fields are left out, by name.

Reports come from jobs' own code. A number that is not finite, negative or absurd must not reach
the models, and must not invalidate the rest of the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from autoscaler.domain.errors import SpecError
from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale
from autoscaler.domain.job_rules import MOST_EXAMPLES, MOST_EXAMPLES_OF_BATCH, MOST_INSTANCES
from autoscaler.domain.report import (
    CheckpointStatus,
    Failure,
    MembershipPause,
    MemoryPeak,
    Quality,
    StepObservation,
    TrainingReport,
)
from autoscaler.domain.rules import (
    LONGEST_SECONDS,
    require_count,
    require_line,
    require_number,
    require_positive,
)
from autoscaler.domain.text import quoted
from autoscaler.domain.training import RESTARTS, Engine

MOST_STEPS: Final = 1 << 53
MOST_OBSERVATIONS: Final = 1000
MOST_PAUSES: Final = 1000
_MOST_QUALITIES: Final = 10_000
MOST_KINDS: Final = 200
_MOST_METRICS: Final = 200
_MOST_MEMORY_PEAKS: Final = 200
_MOST_DEVICES: Final = 1 << 20
_MOST_PARAMETER_BYTES: Final = 1 << 50
_LARGEST_NUMBER: Final = 1e30
_LONGEST_NAME: Final = 100
_LONGEST_TEXT: Final = 2_000
_MOST_LINES: Final = 100
_MOST_REFUSALS: Final = 5

Item = TypeVar("Item")


@dataclass(slots=True)
class Refusals:
    """Fields left out of a report, with reasons; the first few."""

    texts: list[str] = field(default_factory=list)

    def add(self, error: SpecError) -> None:
        """Record the error of a refused field."""
        if len(self.texts) < _MOST_REFUSALS:
            self.texts.append(str(error))

    def kept(self, items: Sequence[Item], rule: Callable[[Item], None]) -> tuple[Item, ...]:
        """Return the items that a rule accepts, and record the errors of the others."""
        return tuple(item for item in items if self.allows(rule, item))

    def allows(self, rule: Callable[..., None], *values: object) -> bool:
        """Return whether a rule accepts the values, and record its error otherwise."""
        try:
            rule(*values)
        except SpecError as error:
            self.add(error)
            return False
        return True


def sound_report(report: TrainingReport, refusals: Refusals) -> TrainingReport | None:
    """Return a report without its invalid fields; None if its core state is invalid.

    Args:
        report: as the job's code sent it.
        refusals: receives the errors of the fields left out.
    """
    if not refusals.allows(_require_state, report):
        return None
    noise, goodput = report.noise, report.goodput_measured
    if noise is not None and not refusals.allows(_require_noise, noise):
        noise = None
    if goodput is not None and not refusals.allows(
        require_number, goodput, "goodput_measured", 0.0, MOST_EXAMPLES
    ):
        goodput = None
    state_bytes = report.state_bytes
    if state_bytes is not None and not refusals.allows(
        require_count, state_bytes, "state_bytes", _MOST_PARAMETER_BYTES
    ):
        state_bytes = None
    if report.steps is not None and not refusals.allows(_require_start, report):
        report = replace(report, steps=None, trained_seconds=None)
    return replace(
        report,
        noise=noise,
        goodput_measured=goodput,
        state_bytes=state_bytes,
        observations=refusals.kept(report.observations, _require_observation)[-MOST_OBSERVATIONS:],
        pauses=refusals.kept(report.pauses, _require_pause)[-MOST_PAUSES:],
        quality=refusals.kept(report.quality, _require_quality)[-_MOST_QUALITIES:],
        metrics=_sound_metrics(report.metrics, refusals),
        checkpoint=_sound_checkpoint(report.checkpoint, refusals),
        memory=refusals.kept(report.memory, _require_memory_peak)[-_MOST_MEMORY_PEAKS:],
    )


def sound_failure(failure: Failure, instance: str) -> Failure:
    """Return a failure with its instance set, and its numbers and texts bounded."""
    return replace(
        failure,
        instance=instance,
        attempt=_clamped(failure.attempt, 1, 1 << 31),
        exit_code=_clamped(failure.exit_code, -(1 << 31), 1 << 31),
        cause=failure.cause[:_LONGEST_TEXT],
        signature=failure.signature[:_LONGEST_TEXT],
        steps=_clamped(failure.steps, 0, MOST_STEPS),
        last_lines=tuple(line[:_LONGEST_TEXT] for line in failure.last_lines[-_MOST_LINES:]),
        device_limit=_sound_limit(failure.device_limit),
    )


def _sound_limit(limit: tuple[str, int] | None) -> tuple[str, int] | None:
    if limit is None or not Refusals().allows(_require_limit, *limit):
        return None
    return limit


def _require_start(report: TrainingReport) -> None:
    require_count(report.steps or 0, "steps", MOST_STEPS, least=0)
    trained_seconds = report.trained_seconds or 0.0
    require_number(trained_seconds, "trained_seconds", 0.0, LONGEST_SECONDS)


def _require_memory_peak(peak: MemoryPeak) -> None:
    require_line(peak.device_kind, "memory.device_kind", _LONGEST_NAME)
    require_count(peak.device_batch, "memory.device_batch", MOST_EXAMPLES_OF_BATCH)
    require_count(peak.peak_bytes, "memory.peak_bytes", _MOST_PARAMETER_BYTES)


def _require_limit(kind: str, size: int) -> None:
    require_line(kind, "bounds.kind_maxima", _LONGEST_NAME)
    require_count(size, "bounds.kind_maxima", MOST_EXAMPLES_OF_BATCH)


def _require_state(report: TrainingReport) -> None:
    require_count(report.step, "step", MOST_STEPS, least=0)
    require_count(report.epoch, "epoch", MOST_STEPS, least=0)
    require_number(report.progress_examples, "progress_examples", 0.0, MOST_EXAMPLES)
    if report.total_examples is not None:
        require_positive(report.total_examples, "total_examples", MOST_EXAMPLES)
    _require_batch(report.batch, report.bounds)
    require_count(report.replicas, "replicas", MOST_INSTANCES, least=0)
    require_count(report.devices, "devices", _MOST_DEVICES, least=0)
    require_number(report.learning_rate, "learning_rate", -_LARGEST_NUMBER, _LARGEST_NUMBER)
    require_count(report.parameter_bytes, "parameter_bytes", _MOST_PARAMETER_BYTES, least=0)
    require_count(report.skipped_steps, "skipped_steps", MOST_STEPS, least=0)
    engines = (*Engine, RESTARTS)
    if report.engine not in engines:
        raise SpecError(
            f"must be one of {', '.join(engines)}, not {quoted(report.engine)}", "engine"
        )


def _require_batch(batch: Batch, bounds: BatchBounds) -> None:
    sizes = {
        "batch.total": batch.total,
        "batch.device": batch.device,
        "bounds.initial": bounds.initial,
        "bounds.maximum": bounds.maximum,
        "bounds.device_maximum": bounds.device_maximum,
    }
    for name, size in sizes.items():
        require_count(size, name, MOST_EXAMPLES_OF_BATCH)
    require_count(batch.accumulation, "batch.accumulation", MOST_EXAMPLES_OF_BATCH, least=0)
    require_count(len(bounds.kind_maxima), "bounds.kind_maxima", MOST_KINDS, least=0)
    for kind, size in bounds.kind_maxima:
        _require_limit(kind, size)


def _require_noise(noise: NoiseScale) -> None:
    require_count(noise.initial_batch, "noise.initial_batch", MOST_EXAMPLES_OF_BATCH)
    require_positive(noise.gradient_square, "noise.gradient_square", 1e300)
    require_positive(noise.gradient_variance, "noise.gradient_variance", 1e300)
    require_number(noise.log_standard_deviation, "noise.log_standard_deviation", 0.0, 1e3)
    ratio = noise.gradient_variance / noise.gradient_square
    if not (math.isfinite(ratio) and 0 < ratio * noise.initial_batch <= _LARGEST_NUMBER):
        raise SpecError(f"must be above 0 and finite, not {quoted(ratio)}", "noise")


def _require_observation(observed: StepObservation) -> None:
    prefix = "observations"
    require_line(observed.device_kind, f"{prefix}.device_kind", _LONGEST_NAME)
    require_count(observed.instances, f"{prefix}.instances", MOST_INSTANCES)
    require_count(observed.devices, f"{prefix}.devices", _MOST_DEVICES, least=observed.instances)
    require_count(observed.device_batch, f"{prefix}.device_batch", MOST_EXAMPLES_OF_BATCH)
    require_count(observed.accumulation, f"{prefix}.accumulation", MOST_EXAMPLES_OF_BATCH, least=0)
    require_positive(observed.step_seconds, f"{prefix}.step_seconds", LONGEST_SECONDS)
    require_number(observed.sync_seconds, f"{prefix}.sync_seconds", 0.0, LONGEST_SECONDS)
    if not observed.sync_seconds < observed.step_seconds:
        message = (
            f"must be below step_seconds={observed.step_seconds}, not {observed.sync_seconds}"
        )
        raise SpecError(message, f"{prefix}.sync_seconds")
    require_count(observed.steps, f"{prefix}.steps", MOST_STEPS)


def _require_pause(pause: MembershipPause) -> None:
    require_line(pause.kind, "pauses.kind", _LONGEST_NAME)
    require_number(pause.seconds, "pauses.seconds", 0.0, LONGEST_SECONDS)
    require_count(pause.replicas_before, "pauses.replicas_before", MOST_INSTANCES, least=0)
    require_count(pause.replicas_after, "pauses.replicas_after", MOST_INSTANCES, least=0)


def _require_quality(quality: Quality) -> None:
    require_number(quality.progress_examples, "quality.progress_examples", 0.0, MOST_EXAMPLES)
    require_number(quality.metric, "quality.metric", -_LARGEST_NUMBER, _LARGEST_NUMBER)


def _sound_metrics(metrics: Mapping[str, float], refusals: Refusals) -> Mapping[str, float]:
    def require_metric(item: tuple[str, float]) -> None:
        name, value = item
        require_line(name, "metrics", _LONGEST_NAME)
        require_number(value, f"metrics.{name}", -_LARGEST_NUMBER, _LARGEST_NUMBER)

    return dict(refusals.kept(tuple(metrics.items())[:_MOST_METRICS], require_metric))


def _sound_checkpoint(status: CheckpointStatus, refusals: Refusals) -> CheckpointStatus:
    maxima = {
        "step": MOST_STEPS,
        "seconds": LONGEST_SECONDS,
        "bytes": _MOST_PARAMETER_BYTES,
        "pause_seconds": LONGEST_SECONDS,
    }
    absent: dict[str, Any] = {}
    for name, maximum in maxima.items():
        value = getattr(status, name)
        if value is not None and not refusals.allows(
            require_number, value, f"checkpoint.{name}", 0.0, maximum
        ):
            absent[name] = None
    error = None if status.error is None else status.error[:_LONGEST_TEXT]
    return replace(status, error=error, **absent)


def _clamped(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)
