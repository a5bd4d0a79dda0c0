"""How long a plan takes, by the number of jobs.

python benchmarks/planning.py [--json] [--wall] [--jobs 1,10,100,1000] [--instances 16]
    [--deadlines 0.1] [--batches 100]

Each job may hold up to 16 instances of each of 24 offers (12 types of 4 kinds of device, on-demand
and spot). `free`: no limit binds. `limited`: the jobs share devices for about a quarter of what
they wish. Of `--deadlines` that share of the jobs has one, of six hours; the jobs have so many
different bounds of their batch as `--batches` says. `first` is a plan after all models have
changed, `limited` is from cold too: all models are new. Before `tenth` every job has gone on, and
a tenth of the jobs have new models. Before `priced` they have gone on and one offer has another
price. `again` is made after nothing has changed. The snapshots are given: what it takes to make
them of a store is not counted. Times are the processor's, of all threads together; with `--wall`
those of a clock.
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
from autoscaler.policies.marginal import MarginalPolicy

KINDS = (("t4", 1.0), ("l4", 1.7), ("a10", 2.5), ("a100", 9.0))
DEVICES = (1, 4, 8)
NOW = 1_800_000_000.0
REPEATS = 3
Clock = Callable[[], float]
# Of more jobs the others have models like these, each its own.
DISTINCT_JOBS = 500


def offers() -> tuple[Offer, ...]:
    """24 offers; a device costs a little less than its speed."""
    found = []
    for kind, speed in KINDS:
        for devices in DEVICES:
            for purchase in (Purchase.ON_DEMAND, Purchase.SPOT):
                is_spot = purchase is Purchase.SPOT
                usd = 0.5 * devices * speed**0.9 * (0.35 if is_spot else 1.0)
                found.append(
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
    return tuple(found)


def models(generator: np.random.Generator) -> dict[str, ThroughputModel]:
    """T4 measured at one and two devices, the other kinds not."""
    seconds = float(generator.lognormal(-5.0, 0.7))
    seen = [
        StepObservation("t4", 1, 1, 64, 0, 64 * seconds, 0.0, 200),
        StepObservation("t4", 2, 2, 64, 0, 64 * seconds * 1.2, 64 * seconds * 0.2, 200),
    ]
    measured = fit(seen, prior_for("t4", 100_000_000, 3e9))
    found = {"t4": measured}
    for kind, speed in KINDS[1:]:
        found[kind] = fit([], prior_from_kind(measured, kind, speed))
    return found


def jobs(
    count: int, seed: int = 0, instances: int = 16, deadlines: float = 0.0, batches: int = 1
) -> tuple[JobSnapshot, ...]:
    """Jobs that hold one or two T4; a third of each preference, all adaptive.

    The share of `deadlines`, evenly spread, have six hours; `batches` is how many different
    largest batches there are.
    """
    generator = np.random.default_rng(seed)
    wants = (Preference.BALANCED, Preference.CHEAPEST, Preference.FASTEST)
    found: list[JobSnapshot] = []
    for index in range(count):
        held = Allocation("t4-1-on-demand", 1 + index % 2, 1)
        is_due = int((index + 1) * deadlines) > int(index * deadlines)
        found.append(
            JobSnapshot(
                id=f"job-{index:04d}",
                objective=Objective(
                    wants[index % 3], deadline_seconds=NOW + 6 * 3600.0 if is_due else None
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
                    else _like(found[index % DISTINCT_JOBS])
                ),
                noise=NoiseScale(64, 1.0, float(generator.lognormal(1.0, 1.0)), 0.2),
                switching=SwitchingCosts(2.0, 60.0),
            )
        )
    return tuple(found)


def _like(other: JobSnapshot) -> dict[str, ThroughputModel]:
    """Models of the same parameters, measured anew."""
    return {kind: replace(model) for kind, model in other.models.items()}


def gone_on(some: tuple[JobSnapshot, ...]) -> tuple[JobSnapshot, ...]:
    """The jobs a little later; every tenth has the models of another, measured anew."""
    return tuple(
        replace(job, models=job.models if index % 10 else _like(some[index - 1]))
        for index, job in enumerate(_done(some))
    )


def _done(some: tuple[JobSnapshot, ...]) -> tuple[JobSnapshot, ...]:
    """The jobs after a little work."""
    return tuple(
        replace(
            job,
            remaining_examples=0.99 * (job.remaining_examples or 0.0),
            spent_usd=job.spent_usd + 0.01,
        )
        for job in some
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """How long plans of `jobs` jobs take: medians of REPEATS, in milliseconds.

    `limited_gap_percent` is how far the limited plan may be from the best, of what it spends.
    `peak_mib` is the most memory that the process has had so far, the snapshots' included.
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
    """Plan for so many jobs, `like` what `jobs` takes, without a limit and with one."""
    repeats = REPEATS if count <= DISTINCT_JOBS else 1
    rows = [_measure_once(jobs(count, seed, **like), clock) for seed in range(repeats)]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Figures(count, *np.median([(*row, peak_mib) for row in rows], axis=0).tolist())


def _measure_once(some: tuple[JobSnapshot, ...], clock: Clock) -> tuple[float, ...]:
    free = Snapshot(NOW, offers(), (), some)
    first_ms, wished = _timed(free, clock)
    again_ms, _ = _timed(free, clock)
    devices = max(_total(wished, free, "devices") // 4, 1.0)
    limits = (Limit("devices", LimitUnit.DEVICES, devices),)
    renewed = tuple(replace(job, models=_like(job)) for job in some)
    limited = replace(free, limits=limits, jobs=renewed)
    limited_ms, plan = _timed(limited, clock)
    gap_usd_per_hour = 3600 * plan.gap_usd_per_second
    gap_percent = 100 * gap_usd_per_hour / _total(plan, limited, "usd_per_hour")
    later = gone_on(renewed)
    tenth_ms, _ = _timed(replace(limited, jobs=later), clock)
    moved = replace(limited, offers=_dearer(limited.offers), jobs=_done(later))
    priced_ms, _ = _timed(moved, clock)
    return first_ms, again_ms, limited_ms, gap_percent, tenth_ms, priced_ms


def _dearer(some: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers, of which one has another price."""
    first, *others = some
    return replace(first, usd_per_hour=first.usd_per_hour * Decimal("1.05")), *others


def _timed(moment: Snapshot, clock: Clock) -> tuple[float, Plan]:
    begin = clock()
    plan = MarginalPolicy().plan(moment)
    return 1000 * (clock() - begin), plan


def _total(plan: Plan, moment: Snapshot, figure: str) -> float:
    """Devices, or US dollars an hour, of all that the plan holds."""
    by_id = {offer.id: float(getattr(offer, figure)) for offer in moment.offers}
    targets = [decision.target for decision in plan.decisions]
    return sum(by_id[target.offer] * target.instances for target in targets if target)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", default="1,10,100,1000", help="how many, with commas")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--instances", type=int, default=16, help="the most of each offer")
    parser.add_argument("--deadlines", type=float, default=0.0, help="share of jobs with one")
    parser.add_argument("--batches", type=int, default=1, help="different bounds of the batch")
    parser.add_argument("--wall", action="store_true", help="by a clock, not the processor's time")
    arguments = parser.parse_args()
    like = {name: getattr(arguments, name) for name in ("instances", "deadlines", "batches")}
    clock = time.perf_counter if arguments.wall else time.process_time
    figures = [measure(int(count), like, clock) for count in arguments.jobs.split(",")]
    if arguments.json:
        print(json.dumps([asdict(each) for each in figures]))
        return
    names = ["jobs", "free, first", "free, again", "limited", "its gap"]
    names += ["a tenth changed", "a price changed", "memory"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for each in figures:
        print(
            f"| {each.jobs} | {each.free_first_ms:.1f} ms | {each.free_again_ms:.1f} ms "
            f"| {each.limited_ms:.1f} ms | {each.limited_gap_percent:.2g} % "
            f"| {each.tenth_ms:.1f} ms | {each.priced_ms:.1f} ms | {each.peak_mib:.0f} MiB |"
        )


if __name__ == "__main__":
    main()
