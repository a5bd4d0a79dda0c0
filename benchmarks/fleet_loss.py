"""What it costs to plan jobs as a fleet: beside a plan that looks at every size of each.

python benchmarks/fleet_loss.py [--jobs 120] [--instances 64]

The jobs and offers are those of `planning.py`. `none`: no limit; what jobs wish, by its expected
cost to the end beside that of the best. Else what all get within limits, by what it is worth
beyond nothing beside the program over every size. `devices` and `dollars` bear about a quarter and
a third of what is wished, `kinds` half as many instances of each kind as there are jobs.
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
from autoscaler.economics import supply as supplies
from autoscaler.economics.wishes import Wish, wish
from autoscaler.policies.marginal import MarginalPolicy
from autoscaler.policies.program import Effort
from autoscaler.policies.sharing import Sharing, share_out

_Targets = Mapping[str, Allocation | None]
_SEED = 3


def as_fleet(moment: Snapshot) -> dict[str, Allocation | None]:
    """What each job gets when any number of jobs is a fleet."""
    usual, supplies.FLEET_JOBS = supplies.FLEET_JOBS, 0
    try:
        return {each.job: each.target for each in MarginalPolicy().plan(moment).decisions}
    finally:
        supplies.FLEET_JOBS = usual


def wishes(moment: Snapshot) -> list[Wish]:
    """Those of each job by itself, among all sizes."""
    terms = supplies.supply_of(replace(moment, jobs=())).terms
    supply = supplies.Supply(terms, moment.now_seconds, moment.replan_seconds)
    room = supply.maximum - supply.uses(job.held for job in moment.jobs)
    return [wish(job, supply, room) for job in moment.jobs]


def more_by_itself(moment: Snapshot) -> tuple[float, float]:
    """By how much what jobs wish as a fleet costs more: of all together, and the mean of each."""
    found, best, mine = as_fleet(moment), [], []
    for own in wishes(moment):
        index = own.at.candidates.index(found[own.job.id])
        best.append(own.expected_usd[own.target])
        mine.append(own.expected_usd[index])
    return float(sum(mine) / sum(best)) - 1.0, float(np.mean(np.divide(mine, best))) - 1.0


def less_within(moment: Snapshot) -> float:
    """By how much what jobs get within limits as a fleet is worth less."""
    supply = supplies.supply_of(replace(moment, jobs=()))
    best = share_out(wishes(moment), supply, Effort())
    return 1.0 - _worth(as_fleet(moment), best) / _worth(best.targets, best)


def _worth(targets: _Targets, best: Sharing) -> float:
    return sum(
        share.value(share.wish.at.candidates.index(targets[job])) - share.worth.nothing
        for job, share in best.shares.items()
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--instances", type=int, default=64, help="the most of each offer")
    arguments = parser.parse_args()
    some = planning.jobs(arguments.jobs, _SEED, arguments.instances)
    free = Snapshot(planning.NOW, planning.offers(), (), some)
    alone = {own.job.id: own.at.candidates.allocation(own.target or 0) for own in wishes(free)}
    by_id = {offer.id: offer for offer in planning.offers()}
    devices = sum(by_id[each.offer].devices * each.instances for each in alone.values())
    usd = sum(float(by_id[each.offer].usd_per_hour) * each.instances for each in alone.values())
    limits = {
        "devices": (Limit("devices", LimitUnit.DEVICES, devices // 4),),
        "devices and dollars": (
            Limit("devices", LimitUnit.DEVICES, devices // 3),
            Limit("dollars", LimitUnit.USD_PER_HOUR, usd / 4),
        ),
        "kinds": tuple(_of_kind(kind, len(some) / 2) for kind, _ in planning.KINDS),
    }
    together, each = more_by_itself(free)
    print("| limits | lost |\n|---|---|")
    print(f"| none | {100 * together:.2f} % of the sum, {100 * each:.2f} % of each |")
    for name, found in limits.items():
        print(f"| {name} | {100 * less_within(replace(free, limits=found)):.2f} % |")


def _of_kind(kind: str, most: float) -> Limit:
    ids = frozenset(offer.id for offer in planning.offers() if offer.device_kind == kind)
    return Limit(kind, LimitUnit.INSTANCES, most, ids)


if __name__ == "__main__":
    main()
