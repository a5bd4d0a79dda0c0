"""Plan of a job that was not submitted: the policy's decision and its consequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.fitting import require_fit, with_shard
from autoscaler.controller.jobs.programs import recalled
from autoscaler.controller.observe.snapshots import allowed_offers, missing_gpus
from autoscaler.controller.predict.circumstances import (
    Circumstances,
    circumstances_of,
    snapshot_of,
)
from autoscaler.controller.predict.shards import choose_shard
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Decision
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.shards import ShardChoice, UnfitOffer
from autoscaler.economics.forecasts.frontier import Frontier, frontier
from autoscaler.policies.base import Policy
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Frontier of one job, and the policy's first decision for it.

    `unfit` are the permitted offers that can't hold the job. `shards` compares the sizes of a copy
    of the model; None where the job states one.
    """

    frontier: Frontier
    decision: Decision
    memory: ProgramMemory | None
    unfit: tuple[UnfitOffer, ...] = ()
    shards: ShardChoice | None = None


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
        return what_if(
            spec,
            lambda decided: recalled(self._store, decided),
            circumstances_of(status, self._replan_seconds),
            self._policy,
            self._clock.now(),
        )


def what_if(
    spec: JobSpec,
    recall: Callable[[JobSpec], ProgramMemory | None],
    now: Circumstances,
    policy: Policy,
    now_seconds: float,
) -> WhatIf:
    """Return the plan of the job if it were submitted now and had the supply to itself.

    The frontier of a job of unknown length has rates only.

    Args:
        spec: the job.
        recall: function from the job at one shard to the memory of its program; None: priors.
        now: offers and limits.
        policy: the policy that makes the first decision.
        now_seconds: the time since the Unix epoch.

    Raises:
        SpecError: the job is not valid, no provider sells an offer that it names, or no offer can
            run it.
    """
    require_valid_job(spec)
    _require_sold(spec, now.offers)
    shards = None
    if spec.parallelism.is_undecided:
        shards = choose_shard(spec, recall, now, now_seconds)
        spec = with_shard(spec, shards.shard)
    memory = recall(spec)
    require_fit(spec, allowed_offers(spec.instances, now.offers), now.offers, now.limits)
    snapshot = snapshot_of(spec, memory, now, now_seconds)
    job = snapshot.jobs[0]
    job_frontier = frontier(job, snapshot)
    if job_frontier is None:
        raise SpecError(f"no offer can run {spec.name}: {_offered(now.offers)}", "instances")
    decision = policy.plan(snapshot).decisions[0]
    return WhatIf(job_frontier, decision, memory, job.unfit, shards)


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


def _offered(offers: Sequence[Offer]) -> str:
    names = ", ".join(sorted({offer.id for offer in offers}))
    return f"there are {names or 'no offers'}"
