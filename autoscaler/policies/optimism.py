"""Goodput as Pollux and Sia predict it: what was not measured yet is taken to cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.domain.goodput import LocalityParameters, StepParameters
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.formulas import predictor_of

# A sync over several machines, before one was measured, takes so many times that within one.
_ACROSS_OVER_WITHIN = 1.1


def goodputs(
    job: JobSnapshot, model: ThroughputModel | None, sizes: Sequence[tuple[int, int]]
) -> list[float]:
    """Useful examples a second on so many (machines, devices) of the model's kind.

    By the fit, but that what was not measured is taken to cost nothing; as many as the devices
    where nothing was measured at all.

    Source: Qiao et al., Pollux (OSDI'21), section 4.1.
    """
    machines, devices = np.array(sizes).reshape(-1, 2).T
    if model is None or not model.measured:
        return [float(number_of) for number_of in devices]
    noise = job.noise.examples if job.noise is not None and is_usable(job.noise) else 0.0
    point = predictor_of((optimistic(model),))
    (speeds,) = goodput_table(point, noise, job.batch.on(model.device_kind), machines, devices)
    found: list[float] = speeds.tolist()
    return found


def speedups_over(
    base: tuple[int, int],
    job: JobSnapshot,
    model: ThroughputModel | None,
    sizes: Sequence[tuple[int, int]],
) -> list[float]:
    """`goodputs` of the sizes, over that of `base`; 0 where the job can't run.

    Where it can't run on `base`, which is too little for one whole replica, over what as many
    devices of the best of the sizes give.
    """
    over, *found = goodputs(job, model, [base, *sizes])
    if over == 0.0:
        rates = (speed / devices for speed, (_, devices) in zip(found, sizes, strict=True))
        over = base[1] * max(rates, default=0.0)
    return [speed / over if over > 0 else 0.0 for speed in found]


def optimistic(model: ThroughputModel) -> StepParameters:
    """The point estimate, but that what was not measured costs nothing."""
    found = model.point
    if not any(devices > 1 for _, devices in model.measured):
        found = replace(found, alpha_within_seconds=0.0, beta_within_seconds_per_doubling=0.0)
    if not any(machines > 1 for machines, _ in model.measured):
        found = replace(
            found,
            alpha_across_seconds=_ACROSS_OVER_WITHIN * found.alpha_within_seconds,
            beta_across_seconds_per_doubling=_ACROSS_OVER_WITHIN
            * found.beta_within_seconds_per_doubling,
        )
    if isinstance(found, LocalityParameters) and not any(
        machines > found.near_instances for machines, _ in model.measured
    ):
        found = replace(found, alpha_far_seconds=0.0, beta_far_seconds_per_doubling=0.0)
    return found
