"""Decorator for objectives that run on several instances and may be resized."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec

_log = logging.getLogger(__name__)

_ATTRIBUTE: Final = "castor_terms"

AnyObjective = TypeVar("AnyObjective", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DistributedSettings:
    """Numbers of instances that a trial may have, and its batch sizes."""

    minimum: int
    maximum: int
    batch: BatchSpec


def distributed(
    instances: int | tuple[int, int] = (1, 4),
    *,
    batch: int | None = None,
    adaptive: bool = False,
    max_batch: int | None = None,
    device_batch: int | None = None,
) -> Callable[[AnyObjective], AnyObjective]:
    """Let each trial of an objective run on several instances and all their devices.

    The objective runs on every rank, and trains in one
    `autoscaler.training.training_session.session`. All ranks make the same calls of the trial in
    the same order, and receive the same answers. Without Castor the decorator has no effect.

    Args:
        instances: maximum for a trial, or (minimum, maximum).
        batch: examples in a step over all devices; None for the session's batch, which may be a
            hyper-parameter.
        adaptive: let the batch grow while that speeds up progress, and scale the learning rate
            with it. Results then depend on the allocation of a trial.
        max_batch: maximum examples in a step, if adaptive.
        device_batch: maximum examples of a step on one device at a time.

    Raises:
        SpecError: the arguments can't be used together; the message names the argument.
    """
    minimum, maximum = (1, instances) if isinstance(instances, int) else instances
    if not 1 <= minimum <= maximum:
        raise SpecError(f"{instances} must be from 1 on, the least first", "instances")
    sizes = {"batch": batch, "max_batch": max_batch, "device_batch": device_batch}
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise SpecError(f"{size} is less than 1", name)
    if adaptive != (max_batch is not None):
        raise SpecError("goes with adaptive=True, which needs it", "max_batch")
    if batch is not None and max_batch is not None and max_batch < batch:
        raise SpecError(f"{max_batch} is less than batch={batch}", "max_batch")
    terms = DistributedSettings(
        minimum, maximum, BatchSpec(batch, max_batch, device_batch, adaptive)
    )

    def mark(objective: AnyObjective) -> AnyObjective:
        setattr(objective, _ATTRIBUTE, terms)
        return objective

    return mark


def distributed_settings(objective: Callable[..., Any]) -> DistributedSettings | None:
    """Return the settings of a decorated objective; None for other objectives."""
    terms: DistributedSettings | None = getattr(objective, _ATTRIBUTE, None)
    return terms


def trial_job(objective: Callable[..., Any], template: JobSpec) -> JobSpec:
    """Return the job of an objective's trials: `template` with the decorator's settings.

    Raises:
        SpecError: the numbers of instances of template and objective have no overlap.
    """
    terms, bounds = distributed_settings(objective), template.instances
    if terms is None:
        if bounds.minimum > 1:
            raise SpecError(
                f"at least {bounds.minimum} for an objective that runs on one: decorate it with "
                "@hpo.distributed",
                "instances.min",
            )
        if bounds.maximum > 1:
            _log.warning("instances.max %d: the objective runs on one", bounds.maximum)
        return replace(template, instances=replace(bounds, maximum=1))
    return replace(
        template,
        instances=_both(bounds, terms),
        batch=terms.batch if template.batch == BatchSpec() else template.batch,
        distributed=True,
    )


def _both(bounds: InstanceBounds, terms: DistributedSettings) -> InstanceBounds:
    """Return the bounds that satisfy both the template and the objective."""
    if (bounds.minimum, bounds.maximum) == (1, 1):
        return replace(bounds, minimum=terms.minimum, maximum=terms.maximum)
    minimum = max(bounds.minimum, terms.minimum)
    maximum = min(bounds.maximum, terms.maximum)
    if minimum > maximum:
        raise SpecError(
            f"{bounds.minimum} to {bounds.maximum}, and the objective runs on {terms.minimum} to "
            f"{terms.maximum}: see its @hpo.distributed",
            "instances",
        )
    return replace(bounds, minimum=minimum, maximum=maximum)
