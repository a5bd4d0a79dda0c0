"""Goodput as Pollux and Sia predict it: unmeasured communication is assumed to cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.domain.goodput import LocalityParameters, ShardedParameters, StepParameters
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.formulas import predictor_of

# Time of a synchronisation across machines over one within a machine, before it is measured.
_ACROSS_OVER_WITHIN = 1.1


def goodputs(
    job: JobSnapshot, model: ThroughputModel | None, sizes: Sequence[tuple[int, int]]
) -> list[float]:
    """Return useful examples per second at (machines, devices) of the model's kind.

    The rates follow the fit, with `optimistic` parameters. Without any measurement, the rate is
    the number of devices.

    Source: Qiao et al., Pollux (OSDI'21), section 4.1.
    """
    machines, devices = np.array(sizes).reshape(-1, 2).T
    if model is None or not model.measured:
        return [float(count) for count in devices]
    noise = job.noise.examples if job.noise is not None and is_usable(job.noise) else 0.0
    point = predictor_of((optimistic(model),))
    (speeds,) = goodput_table(point, noise, job.batch.on(model.device_kind), machines, devices)
    rates: list[float] = speeds.tolist()
    return rates


def speedups_over(
    base: tuple[int, int],
    job: JobSnapshot,
    model: ThroughputModel | None,
    sizes: Sequence[tuple[int, int]],
) -> list[float]:
    """Return `goodputs` of the sizes over that of `base`; 0 where the job cannot run.

    If the job cannot run on `base`, which is smaller than a whole replica, the base goodput is
    that of as many devices at the best rate per device of the sizes.
    """
    base_goodput, *size_goodputs = goodputs(job, model, [base, *sizes])
    if base_goodput == 0.0:
        rates = (speed / devices for speed, (_, devices) in zip(size_goodputs, sizes, strict=True))
        base_goodput = base[1] * max(rates, default=0.0)
    return [speed / base_goodput if base_goodput > 0 else 0.0 for speed in size_goodputs]


def optimistic(model: ThroughputModel) -> StepParameters:
    """Return the point estimate with unmeasured communication set to cost nothing."""
    parameters = model.point
    if not any(devices > 1 for _, devices in model.measured):
        parameters = replace(
            parameters, alpha_within_seconds=0.0, beta_within_seconds_per_doubling=0.0
        )
    if not any(machines > 1 for machines, _ in model.measured):
        parameters = replace(
            parameters,
            alpha_across_seconds=_ACROSS_OVER_WITHIN * parameters.alpha_within_seconds,
            beta_across_seconds_per_doubling=_ACROSS_OVER_WITHIN
            * parameters.beta_within_seconds_per_doubling,
        )
    if isinstance(parameters, LocalityParameters) and not any(
        machines > parameters.near_instances for machines, _ in model.measured
    ):
        parameters = replace(parameters, alpha_far_seconds=0.0, beta_far_seconds_per_doubling=0.0)
    if isinstance(parameters, ShardedParameters):
        parameters = _optimistic_gathers(parameters, model)
    return parameters


def _optimistic_gathers(
    parameters: ShardedParameters, model: ThroughputModel
) -> ShardedParameters:
    """Return the parameters with unmeasured gathers set to cost about what measured ones do."""
    within, across = parameters.gather_within_seconds, parameters.gather_across_seconds
    spans = {devices < machines * parameters.shard for machines, devices in model.measured}
    if True not in spans:
        across = _ACROSS_OVER_WITHIN * within
    if False not in spans:
        within = across / _ACROSS_OVER_WITHIN
    return replace(parameters, gather_within_seconds=within, gather_across_seconds=across)
