"""Estimates for jobs before they are submitted."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.controller.jobs.programs import of_layout
from autoscaler.controller.predict.circumstances import Circumstances
from autoscaler.controller.predict.what_if import WhatIf, what_if
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.program import ProgramMemory
from autoscaler.economics.forecasts.frontier import HourlyRate, JobForecast
from autoscaler.policies.registry import create_policy
from autoscaler.wire.plan_messages import PlanView, ProspectView, RateView

_UNKNOWN = (
    "not known yet: the time and cost of the whole job, because the amount of work is unknown. "
    "Set total_progress in the job file (useful examples), or submit the job: it reports its "
    "total within its first minute, and the next plan of the same program uses that"
)


def plan_ahead(
    spec: JobSpec,
    offers: Sequence[Offer],
    limits: Sequence[Limit],
    memory: ProgramMemory | None,
    now_seconds: float,
) -> PlanView:
    """Return the plan for a job from offers and limits alone, without a running controller.

    Raises:
        SpecError: as `what_if`.
    """
    now = Circumstances(tuple(offers), tuple(limits))
    policy = create_policy("marginal")
    plan = what_if(spec, lambda decided: of_layout(memory, decided), now, policy, now_seconds)
    return plan_view(spec, plan)


def plan_view(spec: JobSpec, estimate: WhatIf) -> PlanView:
    """Return the estimate of a job as a message of the API."""
    frontier = estimate.frontier
    return PlanView(
        job=spec.name,
        objective=spec.objective,
        value_of_time_usd_per_hour=frontier.value_of_time,
        frontier=tuple(_prospect_view(prospect) for prospect in frontier.corners),
        others=tuple(_prospect_view(prospect) for prospect in frontier.others),
        chosen=None if frontier.chosen is None else _prospect_view(frontier.chosen),
        chance=frontier.chance,
        shortfall=frontier.shortfall,
        decision=estimate.decision.reason,
        known=_known_from(estimate.memory, bool(frontier.corners)),
        unknown=_UNKNOWN if frontier.rates else None,
        rates=tuple(_rate_view(rate) for rate in frontier.rates),
        unfit=estimate.unfit,
        shards=estimate.shards,
    )


def _rate_view(rate: HourlyRate) -> RateView:
    speed = rate.examples_per_second
    return RateView(
        allocation=rate.allocation,
        usd_per_hour=rate.usd_per_hour,
        examples_per_second=None if speed is None else speed.median,
        examples_per_second_band=None if speed is None else (speed.low, speed.high),
    )


def _prospect_view(prospect: JobForecast) -> ProspectView:
    return ProspectView(
        first=prospect.first,
        then=prospect.then,
        first_share=prospect.first_share,
        seconds=prospect.seconds.median,
        seconds_90=prospect.seconds.ninety_percent,
        usd=prospect.usd.median,
        usd_90=prospect.usd.ninety_percent,
        from_value_of_time_usd_per_hour=prospect.from_value_of_time,
        measured=prospect.is_measured,
        seconds_band=(prospect.seconds.low, prospect.seconds.high),
        usd_band=(prospect.usd.low, prospect.usd.high),
    )


def _known_from(memory: ProgramMemory | None, has_ranges: bool) -> str:
    if memory is None:
        so = ", so the ranges are wide" if has_ranges else ": no speed is known before it trains"
        return f"from priors alone, nothing of it was measured yet{so}"
    kinds = ", ".join(sorted({observation.device_kind for observation in memory.observations}))
    return f"from step times of {memory.program} on {kinds or 'nothing yet'}"
