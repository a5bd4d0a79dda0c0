"""REF: shares of each kind of device by Cobb-Douglas utilities. Elastic jobs on a fixed pool.

Source: Zahedi and Lee, "REF: Resource Elasticity Fairness with Sharing Incentives for
Multiprocessors" (ASPLOS'14), section 4, the closed form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.wording import number
from autoscaler.policies.optimism import goodputs
from autoscaler.policies.pool import Grant, Pool, by_submission, plan_of, pool_of
from autoscaler.policies.pool_bounds import whole


@dataclass(frozen=True, slots=True)
class RefParameters:
    """`least_elasticity`: of a kind that a job can use, so that no share is nothing.

    Raises:
        ValueError: it is not in (0, 1].
    """

    least_elasticity: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 < self.least_elasticity <= 1:
            raise ValueError(f"least_elasticity={self.least_elasticity}: must be in (0, 1]")


_DEFAULTS = RefParameters()


class RefPolicy:
    """``x_ir = C_r alpha_ir / sum_j alpha_jr`` devices of kind r for job i.

    Job i's utility is ``prod_r x_ir ** alpha_ir``; its elasticities alpha_i are the goodputs of
    one device of each kind, scaled to a sum of 1. A job has devices of one kind at a time: it
    takes the kind on which its endowment does most, and those who took a kind share it by the
    same form among themselves, in whole devices, what is left over by submission. On one kind
    all have equal shares.
    """

    only_on = "pool"

    def __init__(self, parameters: RefParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        speeds = {job.id: _speeds(job, pool) for job in queue}
        elasticities = {job: self._elasticities(own) for job, own in speeds.items()}
        endowed = endowments(
            elasticities, {kind: part.available for kind, part in pool.by_kind().items()}
        )
        grants = {job.id: Grant(0, "more jobs than devices") for job in queue}
        for kind, jobs in _takers(queue, endowed, speeds).items():
            alphas = [elasticities[job.id][kind] for job in jobs]
            part = pool.by_kind()[kind]
            sizes = whole_shares(alphas, part.available)
            for job, size in zip(jobs, sizes, strict=True):
                share = number(endowed[job.id][kind])
                why = f"{share} devices of this kind are its fair endowment"
                grants[job.id] = Grant(
                    whole(job, min(size, _most(job), part.most_of(job))), why, kind
                )
        smallest_first = sorted(queue, key=lambda job: grants[job.id].devices)
        return plan_of(snapshot, pool, smallest_first, grants)

    def _elasticities(self, speeds: Mapping[str, float]) -> dict[str, float]:
        total = sum(speeds.values()) or 1.0
        least = self._parameters.least_elasticity
        return {kind: max(speed / total, least) for kind, speed in speeds.items()}


def endowments(
    elasticities: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """What each agent has of each resource (agent -> resource -> amount), by the closed form.

    It is what a market with equal budgets comes to: every resource is given out whole, nobody
    would rather have an equal part of everything, nor what another has.
    """
    totals: dict[str, float] = {}
    for own in elasticities.values():
        for resource, alpha in own.items():
            totals[resource] = totals.get(resource, 0.0) + alpha
    return {
        agent: {r: capacity[r] * alpha / totals[r] for r, alpha in own.items()}
        for agent, own in elasticities.items()
    }


def whole_shares(weights: Sequence[float], available: int) -> list[int]:
    """Whole numbers in proportion to the weights, together `available`: largest rests first."""
    total = sum(weights)
    exact = [available * weight / total for weight in weights]
    found = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda i: (round(found[i] - exact[i], 9), i))
    for i in order[: available - sum(found)]:
        found[i] += 1
    return found


def _speeds(job: JobSnapshot, pool: Pool) -> dict[str, float]:
    """Goodput of one device of each kind that the job may use."""
    return {kind: goodputs(job, job.models.get(kind), [(1, 1)])[0] for kind in pool.for_job(job)}


def _takers(
    queue: Sequence[JobSnapshot],
    endowed: Mapping[str, Mapping[str, float]],
    speeds: Mapping[str, Mapping[str, float]],
) -> dict[str, list[JobSnapshot]]:
    """Who takes which kind: where devices times speed is most, ties in the order of the names."""
    found: dict[str, list[JobSnapshot]] = {}
    for job in queue:
        own = endowed[job.id]
        worth = {kind: own[kind] * speeds[job.id][kind] for kind in sorted(own)}
        if worth:
            found.setdefault(max(worth, key=lambda kind: worth[kind]), []).append(job)
    return found


def _most(job: JobSnapshot) -> int:
    """Devices that there are examples for."""
    return job.batch.maximum if job.batch.adaptive else job.batch.initial
