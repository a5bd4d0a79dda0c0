"""Worth of plans to jobs that are priced one by one, at every size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.supply.supply import Supply, supply_of
from autoscaler.policies.marginal.exact import SolverLimits
from autoscaler.policies.marginal.fleet import FleetPlan, MarginalParameters, plan_fleet


def every_size(moment: Snapshot) -> Supply:
    """Return the supply in which jobs consider every size, however many they are."""
    return supply_of(replace(moment, jobs=()))


def plan_of_each(moment: Snapshot, effort: SolverLimits | None = None) -> FleetPlan:
    """Return the plan of jobs that are priced one by one."""
    parameters = MarginalParameters(effort or SolverLimits())
    return plan_fleet(moment.jobs, every_size(moment), parameters)


def worth_of(targets: Mapping[str, Allocation | None], best: FleetPlan) -> float:
    """Return the weighted worth of targets beyond holding nothing, at the prices of `best`."""
    total = 0.0
    for group, (surplus, nothing) in zip(best.groups, best.worths, strict=True):
        columns = group.columns([targets[job.id] for job in group.jobs])
        values = surplus[np.arange(len(columns)), columns] - nothing
        total += float(np.where(columns >= 0, group.weights * values, 0.0).sum())
    return total
