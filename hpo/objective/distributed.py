"""Objectives that run on every device of several instances, and may be resized while they run."""

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
class Terms:
    """How many instances a trial may have, and what it says of batches."""

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
    """Let each trial of an objective run on several instances, and on all their devices.

    The objective then runs on every rank, and trains in one `autoscaler.training.session`.
    Each rank makes the same calls of its trial in the same order, and gets the same answers. Where
    there is no Castor this changes nothing.

    Args:
        instances: the most for a trial, or the least and the most.
        batch: examples in a step over all devices; None for what the session says, where it may
            be a hyper-parameter.
        adaptive: let the batch grow while that buys progress, and the learning rate follow. A
            trial's result then depends on what it was given, which sets trials apart that would
            have been equal; so it is asked for.
        max_batch: the most examples in a step, if adaptive.
        device_batch: the most examples of a step on one device at a time.

    Raises:
        SpecError: these can't be used together; the message names the argument.
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
    terms = Terms(minimum, maximum, BatchSpec(batch, max_batch, device_batch, adaptive))

    def mark(objective: AnyObjective) -> AnyObjective:
        setattr(objective, _ATTRIBUTE, terms)
        return objective

    return mark


def terms_of(objective: Callable[..., Any]) -> Terms | None:
    """What `distributed` says of an objective; None if it is not."""
    terms: Terms | None = getattr(objective, _ATTRIBUTE, None)
    return terms


def trial_job(objective: Callable[..., Any], template: JobSpec) -> JobSpec:
    """The job of an objective's trials: `template` with what `distributed` says.

    Raises:
        SpecError: the template wants several instances, and the objective can't run there; or
            more or fewer than it can.
    """
    terms, bounds = terms_of(objective), template.instances
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


def _both(bounds: InstanceBounds, terms: Terms) -> InstanceBounds:
    """Within the template's bounds, if it says any, and the objective's."""
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
