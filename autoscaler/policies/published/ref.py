"""REF: shares of each kind of device by Cobb-Douglas utilities. Elastic jobs on a fixed pool.

Source: Zahedi and Lee, "REF: Resource Elasticity Fairness with Sharing Incentives for
Multiprocessors" (ASPLOS'14), section 4, the closed form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import number
from autoscaler.policies.pools.bounds import whole
from autoscaler.policies.pools.optimism import goodputs
from autoscaler.policies.pools.pool import Grant, Pool, by_submission, plan_of, pool_of


@dataclass(frozen=True, slots=True)
class RefParameters:
    """Parameters of REF.

    Attributes:
        least_elasticity: least elasticity of a kind that a job can use; keeps every share above 0.

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

    Job i's utility is ``prod_r x_ir ** alpha_ir``. Its elasticities alpha_i are the goodputs of
    one device of each kind, scaled to a sum of 1. A job has devices of one kind at a time: it
    takes the kind on which its endowment yields the most goodput. The jobs of a kind share its
    devices by the same form, in whole devices, remainders in the order of submission. With one
    kind all jobs have equal shares.
    """

    only_on = "pool"

    def __init__(self, parameters: RefParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        speeds = {job.id: _speeds(job, pool) for job in queue}
        elasticities = {job: self._elasticities(job_speeds) for job, job_speeds in speeds.items()}
        endowed = endowments(
            elasticities, {kind: part.available for kind, part in pool.by_kind().items()}
        )
        grants = {job.id: Grant(0, "more jobs than devices") for job in queue}
        for kind, jobs in _jobs_by_kind(queue, endowed, speeds).items():
            alphas = [elasticities[job.id][kind] for job in jobs]
            part = pool.by_kind()[kind]
            sizes = whole_shares(alphas, part.available)
            for job, size in zip(jobs, sizes, strict=True):
                share = number(endowed[job.id][kind])
                reason = f"{share} devices of this kind are its fair endowment"
                grants[job.id] = Grant(
                    whole(job, min(size, _most_devices(job), part.most_of(job))), reason, kind
                )
        smallest_first = sorted(queue, key=lambda job: grants[job.id].devices)
        return plan_of(snapshot, pool, smallest_first, grants)

    def _elasticities(self, speeds: Mapping[str, float]) -> dict[str, float]:
        """Return the elasticity of each kind: its fraction of the job's total speed."""
        total = sum(speeds.values()) or 1.0
        least = self._parameters.least_elasticity
        return {kind: max(speed / total, least) for kind, speed in speeds.items()}


def endowments(
    elasticities: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return the closed-form endowment (agent -> resource -> amount).

    The endowments equal those of a market with equal budgets: every resource is used fully, and no
    agent prefers an equal split or another agent's endowment.
    """
    totals: dict[str, float] = {}
    for alphas in elasticities.values():
        for resource, alpha in alphas.items():
            totals[resource] = totals.get(resource, 0.0) + alpha
    return {
        agent: {
            resource: capacity[resource] * alpha / totals[resource]
            for resource, alpha in alphas.items()
        }
        for agent, alphas in elasticities.items()
    }


def whole_shares(weights: Sequence[float], available: int) -> list[int]:
    """Return whole numbers in proportion to the weights that sum to `available`.

    The largest remainders are rounded up.
    """
    total = sum(weights)
    exact = [available * weight / total for weight in weights]
    rounded = [int(share) for share in exact]
    order = sorted(
        range(len(exact)), key=lambda index: (round(rounded[index] - exact[index], 9), index)
    )
    for index in order[: available - sum(rounded)]:
        rounded[index] += 1
    return rounded


def _speeds(job: JobSnapshot, pool: Pool) -> dict[str, float]:
    """Return the goodput on one device of each kind that the job may use."""
    return {kind: goodputs(job, job.models.get(kind), [(1, 1)])[0] for kind in pool.for_job(job)}


def _jobs_by_kind(
    queue: Sequence[JobSnapshot],
    endowed: Mapping[str, Mapping[str, float]],
    speeds: Mapping[str, Mapping[str, float]],
) -> dict[str, list[JobSnapshot]]:
    """Return jobs by the kind on which endowed devices times speed is most, ties by name."""
    jobs: dict[str, list[JobSnapshot]] = {}
    for job in queue:
        endowment = endowed[job.id]
        worth = {kind: endowment[kind] * speeds[job.id][kind] for kind in sorted(endowment)}
        if worth:
            jobs.setdefault(max(worth, key=lambda kind: worth[kind]), []).append(job)
    return jobs


def _most_devices(job: JobSnapshot) -> int:
    """Return the most devices of a job: one per example of its largest batch."""
    return job.batch.maximum if job.batch.adaptive else job.batch.initial
