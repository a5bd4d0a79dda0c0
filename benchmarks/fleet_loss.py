"""Loss of fleet planning relative to a plan that prices every size of each job.

python benchmarks/fleet_loss.py [--jobs 120] [--instances 64]

Jobs and offers are those of `planning.py`. Without limits (`none`), the expected cost to the end
of each job's wish is compared with that of the best size. With limits, the total worth
beyond nothing is compared with that of a plan of every size. `devices` and `dollars` allow about a
quarter and a third of the wishes, `kinds` half as many instances of each kind as there are jobs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import planning

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.choice.demands import Demand, demand
from autoscaler.economics.supply.supply import supply_of
from autoscaler.policies.marginal.fleet import FleetPlan, MarginalParameters, plan_fleet
from autoscaler.policies.marginal.policy import MarginalPolicy

_Targets = Mapping[str, Allocation | None]
_SEED = 3


def as_fleet(snapshot: Snapshot) -> dict[str, Allocation | None]:
    """Return the target of each job when any number of jobs is planned as a fleet."""
    plan = MarginalPolicy(MarginalParameters(fleet_jobs=0)).plan(snapshot)
    return {decision.job: decision.target for decision in plan.decisions}


def demands(snapshot: Snapshot) -> list[Demand]:
    """Return each job's own choice among all sizes."""
    supply = supply_of(replace(snapshot, jobs=()))
    room = supply.maximum - supply.uses(job.held for job in snapshot.jobs)
    return [demand(job, supply, room) for job in snapshot.jobs]


def more_by_itself(snapshot: Snapshot) -> tuple[float, float]:
    """Return the relative extra cost of fleet wishes: of their sum, and the mean over jobs."""
    fleet_targets, best_usd, fleet_usd = as_fleet(snapshot), [], []
    for choice in demands(snapshot):
        index = choice.at.candidates.index(fleet_targets[choice.job.id])
        best_usd.append(choice.expected_usd[choice.target])
        fleet_usd.append(choice.expected_usd[index])
    return float(sum(fleet_usd) / sum(best_usd)) - 1.0, float(
        np.mean(np.divide(fleet_usd, best_usd))
    ) - 1.0


def less_within(snapshot: Snapshot) -> float:
    """Return the relative loss of worth of a fleet plan within limits."""
    supply = supply_of(replace(snapshot, jobs=()))
    best = plan_fleet(snapshot.jobs, supply, MarginalParameters())
    return 1.0 - _worth(as_fleet(snapshot), best) / _worth(best.targets, best)


def _worth(targets: _Targets, best: FleetPlan) -> float:
    """Return the total weighted worth of the targets beyond nothing, at the prices of `best`."""
    total = 0.0
    for group, (surplus, nothing) in zip(best.groups, best.worths, strict=True):
        columns = group.columns([targets[job.id] for job in group.jobs])
        values = surplus[np.arange(len(columns)), columns] - nothing
        total += float(np.where(columns >= 0, group.weights * values, 0.0).sum())
    return total


def main() -> None:
    """Print the table of losses."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--instances", type=int, default=64, help="most instances of each offer")
    arguments = parser.parse_args()
    jobs = planning.jobs(arguments.jobs, _SEED, arguments.instances)
    unlimited = Snapshot(planning.NOW, planning.offers(), (), jobs)
    alone = {
        choice.job.id: choice.at.candidates.allocation(choice.target or 0)
        for choice in demands(unlimited)
    }
    by_id = {offer.id: offer for offer in planning.offers()}
    devices = sum(
        by_id[allocation.offer].devices * allocation.instances for allocation in alone.values()
    )
    usd = sum(
        float(by_id[allocation.offer].usd_per_hour) * allocation.instances
        for allocation in alone.values()
    )
    limits = {
        "devices": (Limit("devices", LimitUnit.DEVICES, devices // 4),),
        "devices and dollars": (
            Limit("devices", LimitUnit.DEVICES, devices // 3),
            Limit("dollars", LimitUnit.USD_PER_HOUR, usd / 4),
        ),
        "kinds": tuple(_limit_of_kind(kind, len(jobs) / 2) for kind, _ in planning.KINDS),
    }
    loss_of_sum, mean_loss = more_by_itself(unlimited)
    print("| limits | lost |\n|---|---|")
    print(f"| none | {100 * loss_of_sum:.2f} % of the sum, {100 * mean_loss:.2f} % of each |")
    for name, named_limits in limits.items():
        print(f"| {name} | {100 * less_within(replace(unlimited, limits=named_limits)):.2f} % |")


def _limit_of_kind(kind: str, most: float) -> Limit:
    """Return a limit on the instances of one kind of device."""
    ids = frozenset(offer.id for offer in planning.offers() if offer.device_kind == kind)
    return Limit(kind, LimitUnit.INSTANCES, most, ids)


if __name__ == "__main__":
    main()
