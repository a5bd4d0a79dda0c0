"""Plan of a job that was not submitted: the policy's decision and its consequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.models import Models
from autoscaler.controller.jobs.programs import recalled
from autoscaler.controller.jobs.step_times import KnownStepTimes
from autoscaler.controller.observe.snapshots import (
    allowed_offers,
    job_snapshot,
    missing_gpus,
)
from autoscaler.controller.offers.estimates import MarketEstimator
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.lives import LifetimeEstimate
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Decision
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.forecasts.frontier import Frontier, frontier
from autoscaler.policies.base import Policy
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Offers and limits for a hypothetical job.

    `lives` are those of reclaimable offers, by id. With None, they follow from the offers' own
    rates of reclaims.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    unavailable: frozenset[str] = frozenset()
    replan_seconds: float = 60.0
    lives: Mapping[str, LifetimeEstimate] | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Frontier of one job, and the policy's first decision for it."""

    frontier: Frontier
    decision: Decision
    memory: ProgramMemory | None


class WhatIfs:
    """Hypothetical plans of a running controller, for the API."""

    def __init__(
        self,
        store: Store,
        status: ControllerStatus,
        policy: Policy,
        replan_seconds: float,
        clock: Clock,
    ) -> None:
        self._store = store
        self._status = status
        self._policy = policy
        self._replan_seconds = replan_seconds
        self._clock = clock

    def of(self, spec: JobSpec) -> WhatIf:
        """Return the result of `what_if` for the present offers and the memory of the program.

        Raises:
            SpecError: as in `what_if`.
            Unavailable: no provider has returned its offers yet.
        """
        status = self._status
        if not status.offers:
            raise Unavailable(
                "no provider has returned its offers yet: try again in a few seconds"
            )
        estimates = status.believed
        circumstances = Circumstances(
            estimates.offers or status.offers,
            status.limits,
            status.unavailable,
            self._replan_seconds,
            estimates.lives if estimates.offers else None,
        )
        memory = recalled(self._store, spec)
        return what_if(spec, memory, circumstances, self._policy, self._clock.now())


def what_if(
    spec: JobSpec,
    memory: ProgramMemory | None,
    now: Circumstances,
    policy: Policy,
    now_seconds: float,
) -> WhatIf:
    """Return the plan of the job if it were submitted now and had the supply to itself.

    The frontier of a job of unknown length has rates only.

    Args:
        spec: the job.
        memory: measurements of its program; None to use the priors of the models.
        now: offers and limits.
        policy: the policy that makes the first decision.
        now_seconds: the time since the Unix epoch.

    Raises:
        SpecError: the job is not valid, no provider sells an offer that it names, or no offer can
            run it.
    """
    require_valid_job(spec)
    _require_sold(spec, now.offers)
    snapshot = _snapshot(spec, memory, now, now_seconds)
    job = snapshot.jobs[0]
    job_frontier = frontier(job, snapshot)
    if job_frontier is None:
        raise SpecError(f"no offer can run {spec.name}: {_offered(now.offers)}", "instances")
    return WhatIf(job_frontier, policy.plan(snapshot).decisions[0], memory)


def _require_sold(spec: JobSpec, offers: Sequence[Offer]) -> None:
    offered_names = {name for offer in offers for name in (offer.id, offer.instance_type)}
    names_by_field = {
        "instances.offers": spec.instances.offers or (),
        "instances.max_of": tuple(name for name, _ in spec.instances.maxima),
    }
    for field, names in names_by_field.items():
        unsold = [name for name in names if name not in offered_names]
        if unsold:
            raise SpecError(f'no provider sells "{unsold[0]}": {_offered(offers)}', field)
    if (missing := missing_gpus(spec.instances, offers)) is not None:
        raise SpecError(missing, "instances.gpu")


def _snapshot(
    spec: JobSpec, memory: ProgramMemory | None, now: Circumstances, now_seconds: float
) -> Snapshot:
    """Return the snapshot that a controller would take right after the job was submitted."""
    store = memory_store()
    job = store.jobs.add(spec, now_seconds)
    usable = allowed_offers(spec.instances, now.offers) or now.offers
    step_times = KnownStepTimes(store).of(job, memory)
    models = Models(store).of(job, step_times, usable, now_seconds)
    snapshot = job_snapshot(store, job, (), now.offers, models, now_seconds, memory)
    return Snapshot(
        now_seconds=now_seconds,
        offers=now.offers,
        limits=now.limits,
        jobs=(replace(snapshot, id=spec.name),),
        unavailable=now.unavailable,
        replan_seconds=now.replan_seconds,
        lives=_usual_lives(store, now.offers, now_seconds) if now.lives is None else now.lives,
    )


def _usual_lives(
    store: Store, offers: tuple[Offer, ...], now_seconds: float
) -> Mapping[str, LifetimeEstimate]:
    """Return the lives that follow from the offers' own rates of reclaims."""
    experience = MarketEstimator(store)
    experience.believed(offers, (), now_seconds)
    return experience.lives(offers)


def _offered(offers: Sequence[Offer]) -> str:
    names = ", ".join(sorted({offer.id for offer in offers}))
    return f"there are {names or 'no offers'}"
