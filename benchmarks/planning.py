"""Time of a plan by the number of jobs.

python benchmarks/planning.py [--json] [--wall] [--jobs 1,10,100,1000] [--instances 16]
    [--deadlines 0.1] [--batches 100]

Each job may hold up to 16 instances of each of 24 offers (12 types of 4 kinds of device, on-demand
and spot). `free`: no limit binds. `limited`: the jobs share devices for about a quarter of their
wishes. `--deadlines` is the fraction of jobs with a deadline, of six hours; `--batches` is the
number of different bounds of the jobs' batch. `first` is a plan after all models have changed;
`limited` has new models too. Before `tenth` every job has progressed, and a tenth of the jobs have
new models. Before `priced` the jobs have progressed and one offer has another price. `again` is
made without a change. The time to build snapshots from a store is excluded. Times are of the
processor, of all threads together; with `--wall` of a clock. The garbage collector is set as in
`castor serve`.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts, ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.prior import prior_for, prior_from_kind
from autoscaler.http_server import collect_rarely
from autoscaler.policies.marginal.policy import MarginalPolicy

KINDS = (("t4", 1.0), ("l4", 1.7), ("a10", 2.5), ("a100", 9.0))
DEVICES = (1, 4, 8)
NOW = 1_800_000_000.0
REPEATS = 3
Clock = Callable[[], float]
# Number of jobs with different models; further jobs have copies of these models.
DISTINCT_JOBS = 500


def offers() -> tuple[Offer, ...]:
    """Return 24 offers; a device costs a little less than in proportion to its speed."""
    result = []
    for kind, speed in KINDS:
        for devices in DEVICES:
            for purchase in (Purchase.ON_DEMAND, Purchase.SPOT):
                is_spot = purchase is Purchase.SPOT
                usd = 0.5 * devices * speed**0.9 * (0.35 if is_spot else 1.0)
                result.append(
                    Offer(
                        id=f"{kind}-{devices}-{purchase.value}",
                        provider="cloud",
                        instance_type=f"{kind}.{devices}",
                        zone="zone-1",
                        purchase=purchase,
                        devices=devices,
                        device_kind=kind,
                        usd_per_hour=Decimal(f"{usd:.4f}"),
                        boot_seconds=180.0,
                        network_bytes_per_second=3e9,
                        reclaims_per_hour=0.05 if is_spot else 0.0,
                    )
                )
    return tuple(result)


def models(generator: np.random.Generator) -> dict[str, ThroughputModel]:
    """Return the models of a job measured on one and two T4, and not on other kinds."""
    seconds = float(generator.lognormal(-5.0, 0.7))
    observations = [
        StepObservation("t4", 1, 1, 64, 0, 64 * seconds, 0.0, 200),
        StepObservation("t4", 2, 2, 64, 0, 64 * seconds * 1.2, 64 * seconds * 0.2, 200),
    ]
    measured = fit(observations, prior_for("t4", 100_000_000, 3e9))
    models_by_kind = {"t4": measured}
    for kind, speed in KINDS[1:]:
        models_by_kind[kind] = fit([], prior_from_kind(measured, kind, speed))
    return models_by_kind


def jobs(
    count: int, seed: int = 0, instances: int = 16, deadlines: float = 0.0, batches: int = 1
) -> tuple[JobSnapshot, ...]:
    """Return jobs that hold one or two T4; a third has each preference, all batches adapt.

    Args:
        count: number of jobs.
        seed: seed of the models.
        instances: most instances of each job.
        deadlines: fraction of jobs with a deadline of six hours, evenly spread.
        batches: number of different largest batches.
    """
    generator = np.random.default_rng(seed)
    preferences = (Preference.BALANCED, Preference.CHEAPEST, Preference.FASTEST)
    result: list[JobSnapshot] = []
    for index in range(count):
        held = Allocation("t4-1-on-demand", 1 + index % 2, 1)
        is_due = int((index + 1) * deadlines) > int(index * deadlines)
        result.append(
            JobSnapshot(
                id=f"job-{index:04d}",
                objective=Objective(
                    preferences[index % 3], deadline_seconds=NOW + 6 * 3600.0 if is_due else None
                ),
                instances=InstanceBounds(1, instances),
                batch=BatchBounds(64, 4096 + 64 * (index % batches), 128, adaptive=True),
                submitted_seconds=NOW - 600.0,
                remaining_examples=float(generator.lognormal(15.0, 1.0)),
                spent_usd=0.1,
                held=held,
                trained=held,
                models=(
                    models(generator)
                    if index < DISTINCT_JOBS
                    else _copied_models(result[index % DISTINCT_JOBS])
                ),
                noise=NoiseScale(64, 1.0, float(generator.lognormal(1.0, 1.0)), 0.2),
                switching=SwitchingCosts(2.0, 60.0),
            )
        )
    return tuple(result)


def _copied_models(other: JobSnapshot) -> dict[str, ThroughputModel]:
    """Return new copies of the job's models."""
    return {kind: replace(model) for kind, model in other.models.items()}


def gone_on(some: tuple[JobSnapshot, ...]) -> tuple[JobSnapshot, ...]:
    """Return the jobs a little later; every tenth has new copies of another job's models."""
    return tuple(
        replace(job, models=job.models if index % 10 else _copied_models(some[index - 1]))
        for index, job in enumerate(_progressed(some))
    )


def _progressed(some_jobs: tuple[JobSnapshot, ...]) -> tuple[JobSnapshot, ...]:
    """Return the jobs after a little progress."""
    return tuple(
        replace(
            job,
            remaining_examples=0.99 * (job.remaining_examples or 0.0),
            spent_usd=job.spent_usd + 0.01,
        )
        for job in some_jobs
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """Times of plans of `jobs` jobs: medians of REPEATS, in milliseconds.

    `limited_gap_percent` is the bound on the limited plan's distance to the best, in % of its
    spending. `peak_mib` is the process's peak memory so far, snapshots included.
    """

    jobs: int
    free_first_ms: float
    free_again_ms: float
    limited_ms: float
    limited_gap_percent: float
    tenth_ms: float
    priced_ms: float
    peak_mib: float


def measure(count: int, like: Mapping[str, Any], clock: Clock = time.process_time) -> Figures:
    """Return the times of plans of so many jobs, without a limit and with one.

    `like` has further arguments of `jobs`.
    """
    repeats = REPEATS if count <= DISTINCT_JOBS else 1
    rows = [_measure_once(jobs(count, seed, **like), clock) for seed in range(repeats)]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Figures(count, *np.median([(*row, peak_mib) for row in rows], axis=0).tolist())


def _measure_once(some_jobs: tuple[JobSnapshot, ...], clock: Clock) -> tuple[float, ...]:
    """Return the measurements of one set of jobs, in the order of `Figures`."""
    policy, free = MarginalPolicy(), Snapshot(NOW, offers(), (), some_jobs)
    first_ms, wished = _timed(policy, free, clock)
    again_ms, _ = _timed(policy, free, clock)
    devices = max(_total(wished, free, "devices") // 4, 1.0)
    limits = (Limit("devices", LimitUnit.DEVICES, devices),)
    renewed = tuple(replace(job, models=_copied_models(job)) for job in some_jobs)
    limited = replace(free, limits=limits, jobs=renewed)
    limited_ms, plan = _timed(policy, limited, clock)
    gap_usd_per_hour = 3600 * plan.gap_usd_per_second
    gap_percent = 100 * gap_usd_per_hour / _total(plan, limited, "usd_per_hour")
    later = gone_on(renewed)
    tenth_ms, _ = _timed(policy, replace(limited, jobs=later), clock)
    moved = replace(limited, offers=_with_dearer_offer(limited.offers), jobs=_progressed(later))
    priced_ms, _ = _timed(policy, moved, clock)
    return first_ms, again_ms, limited_ms, gap_percent, tenth_ms, priced_ms


def _with_dearer_offer(present_offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return the offers with another price of the first one."""
    first, *others = present_offers
    return replace(first, usd_per_hour=first.usd_per_hour * Decimal("1.05")), *others


def _timed(policy: MarginalPolicy, snapshot: Snapshot, clock: Clock) -> tuple[float, Plan]:
    """Return the milliseconds of a plan, and the plan."""
    begin = clock()
    plan = policy.plan(snapshot)
    return 1000 * (clock() - begin), plan


def _total(plan: Plan, snapshot: Snapshot, figure: str) -> float:
    """Return the devices, or US dollars per hour, of all targets of the plan."""
    by_id = {offer.id: float(getattr(offer, figure)) for offer in snapshot.offers}
    targets = [decision.target for decision in plan.decisions]
    return sum(by_id[target.offer] * target.instances for target in targets if target)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--jobs", default="1,10,100,1000", help="numbers of jobs, separated by commas"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--instances", type=int, default=16, help="most instances of each offer")
    parser.add_argument(
        "--deadlines", type=float, default=0.0, help="fraction of jobs with a deadline"
    )
    parser.add_argument(
        "--batches", type=int, default=1, help="number of different bounds of the batch"
    )
    parser.add_argument("--wall", action="store_true", help="clock time instead of processor time")
    arguments = parser.parse_args()
    like = {name: getattr(arguments, name) for name in ("instances", "deadlines", "batches")}
    clock = time.perf_counter if arguments.wall else time.process_time
    collect_rarely()
    figures = [measure(int(count), like, clock) for count in arguments.jobs.split(",")]
    if arguments.json:
        print(json.dumps([asdict(row) for row in figures]))
        return
    names = ["jobs", "free, first", "free, again", "limited", "its gap"]
    names += ["a tenth changed", "a price changed", "memory"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for row in figures:
        print(
            f"| {row.jobs} | {row.free_first_ms:.1f} ms | {row.free_again_ms:.1f} ms "
            f"| {row.limited_ms:.1f} ms | {row.limited_gap_percent:.2g} % "
            f"| {row.tenth_ms:.1f} ms | {row.priced_ms:.1f} ms | {row.peak_mib:.0f} MiB |"
        )


if __name__ == "__main__":
    main()
