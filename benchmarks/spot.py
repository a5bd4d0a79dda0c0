"""Deadlines on spot instances: the real controller on published traces, beside a clairvoyant.

    CASTOR_DATA=... python benchmarks/spot.py [--slack 1.5] [--jobs 80]

Jobs of one V100 instance and four hours of training are submitted one after the other. The
deadline of each is so many times its training after its submission. Four zones sell spot
instances, each by one trace of "Can't Be Late" (Wu et al., NSDI'24), at the prices of its zone;
on-demand is always available. The controller replans every two minutes and on events, and keeps
its knowledge of zones and program from job to job; the first `WARM` jobs are not counted.

The clairvoyant plan knows all traces and pays the same boots: it is the least cost that meets the
deadline, by dynamic programming over minutes, progress and allocation.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path

import numpy as np
from data_folder import data_folder
from numpy.typing import NDArray

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.results import JobResult, result_of
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from providers.simulated.capacity import CapacityTrace, read_capacity_trace
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

APPLICATION, PROFILED_KIND, BATCH = "cifar10", "aws", 128
TRAINING_SECONDS = 4 * 3600.0
BOOT_SECONDS = 180.0
INTERVAL_SECONDS = 120.0
ON_DEMAND_USD_PER_HOUR = Decimal("3.06")
SPOT_USD_PER_HOUR = {
    "us-east-1a": Decimal("0.4995"),
    "us-east-1c": Decimal("0.4803"),
    "us-east-1f": Decimal("0.5576"),
    "us-east-2b": Decimal("0.4829"),
}
CONFIDENCE = 0.99
WARM = 5
MINUTE = 60.0

Costs = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Cost and end of one job, with the clairvoyant's cost.

    `finish_share` is the time from submission to end over that of training alone.
    """

    late_seconds: float
    finish_share: float
    usd: float
    clairvoyant_usd: float
    restarts: int
    on_demand_share: float


def read_zones(data: Path) -> dict[str, CapacityTrace]:
    """Return the traces of V100 instances by zone."""
    paths = sorted((data / "spot").glob("*/*v100*.json"))
    return {path.name.split("_")[0]: read_capacity_trace(path) for path in paths}


def offers(zones: Mapping[str, CapacityTrace]) -> dict[str, Offer]:
    """Return the spot offer of each zone and the on-demand offer, by id."""

    def sold(zone: str, purchase: Purchase, usd_per_hour: Decimal) -> Offer:
        """Return an offer of one p3.2xlarge."""
        return Offer(
            id=f"{zone}-{purchase}",
            provider="aws",
            instance_type="p3.2xlarge",
            zone=zone,
            purchase=purchase,
            devices=1,
            device_kind="v100",
            usd_per_hour=usd_per_hour,
            boot_seconds=BOOT_SECONDS,
            network_bytes_per_second=1.25e9,
            minimum_billed_seconds=60,
        )

    spot = [sold(zone, Purchase.SPOT, SPOT_USD_PER_HOUR[zone]) for zone in zones]
    all_offers = [*spot, sold("us-east-1a", Purchase.ON_DEMAND, ON_DEMAND_USD_PER_HOUR)]
    return {offer.id: offer for offer in all_offers}


@dataclass(frozen=True)
class Jobs:
    """Jobs of a run, one after the other; without a `slack` waiting costs $10/h."""

    slack: float | None
    count: int
    application: str = APPLICATION
    batch: int = BATCH
    training_seconds: float = TRAINING_SECONDS
    step_error: float = 0.0

    @property
    def spacing_seconds(self) -> float:
        """Seconds between two submissions: the next job follows the deadline of the one before."""
        return ((self.slack or 7.5) + 0.5) * self.training_seconds

    def objective(self, now_seconds: float) -> Objective:
        """Return the objective of a job submitted at that time."""
        if self.slack is None:
            return Objective(Preference.VALUE_OF_TIME, 10.0)
        deadline = now_seconds + self.slack * self.training_seconds
        return Objective(deadline_seconds=deadline, confidence=CONFIDENCE)


class FixedBatch(Profile):
    """Profile of an application that always trains at its initial batch."""

    @property
    def maximum_batch(self) -> int:
        """The initial batch."""
        return self.initial_batch


def simulate(
    profiles: Mapping[str, Profile],
    zones: Mapping[str, CapacityTrace],
    jobs: Jobs,
    policy: Policy | None = None,
) -> Sequence[JobResult]:
    """Return the results of the jobs under the controller."""
    offers_by_id = offers(zones)
    published = profiles[jobs.application]
    profile = FixedBatch(
        **{item.name: getattr(published, item.name) for item in fields(published)}
    )
    step_seconds = profile.step_times(PROFILED_KIND, (1,), jobs.batch).accumulated_seconds(0)
    steps = profile.total_examples / jobs.batch
    settings = TrainingSettings(
        slowdown=jobs.training_seconds / (step_seconds * steps), step_error=jobs.step_error
    )
    scenario = Scenario(
        arrivals=tuple(
            Arrival(
                f"job-{number:03}",
                number * jobs.spacing_seconds,
                jobs.application,
                1,
                jobs.batch,
            )
            for number in range(jobs.count)
        ),
        profiles={jobs.application: profile},
        equipment={name: Equipment(offer, PROFILED_KIND) for name, offer in offers_by_id.items()},
        objective=jobs.objective,
        instances=InstanceBounds(maximum=1),
        training=settings,
        interval_seconds=INTERVAL_SECONDS,
        adapts_batch=False,
        remembers=True,
    )
    clock, store = VirtualClock(), memory_store()
    capacity = {f"{zone}-{Purchase.SPOT}": trace for zone, trace in zones.items()}
    cloud = SimulatedCloud(
        SimulatedSettings(tuple(offers_by_id.values()), capacity=capacity), clock
    )
    provider = SimulatedProvider(cloud, store.settings.controller_id())
    timed = TimedPolicy(policy or create_policy("marginal"), SystemClock())
    run = Simulation(scenario, store, provider, timed, clock).run()
    return result_of("marginal", 0, run, store, offers_by_id).jobs


def clairvoyant_usd(
    zones: Mapping[str, CapacityTrace], start_seconds: float, deadline_seconds: float
) -> float:
    """Return the least cost of the training by the deadline, with the traces known.

    `cost[s, w]` is the least cost after each minute with `s` held and w minutes of training done.
    A change pays the boot of the new instance beside the held one, which continues to train if it
    lasts.
    """
    names = list(zones)
    usd = [float(SPOT_USD_PER_HOUR[name]) / 60 for name in names]
    usd += [float(ON_DEMAND_USD_PER_HOUR) / 60, 0.0]
    minutes = int((deadline_seconds - start_seconds) / MINUTE)
    work, boot = int(np.ceil(TRAINING_SECONDS / MINUTE)), int(BOOT_SECONDS / MINUTE)
    is_available = np.ones((len(usd), minutes), dtype=bool)
    for zone, name in enumerate(names):
        trace = zones[name]
        is_available[zone] = [
            trace.available(start_seconds + MINUTE * minute) > 0 for minute in range(minutes)
        ]
    cost = np.full((minutes + 1, len(usd), work + 1), np.inf)
    nothing = len(usd) - 1
    cost[0, nothing, 0] = 0.0
    for minute in range(minutes):
        present = cost[minute]
        present[nothing] = present.min(axis=0)
        for held in range(len(usd)):
            if not is_available[held, minute]:
                continue
            trained = present[held] if held == nothing else _after_training(present[held], 1)
            _lower_in_place(cost[minute + 1, held], trained + usd[held])
            for new in range(nothing):
                until = minute + boot
                if new == held or until > minutes or not is_available[new, minute:until].all():
                    continue
                lasts = is_available[held, minute:until].all() and held != nothing
                paid = boot * (usd[new] + (usd[held] if lasts else 0.0))
                _lower_in_place(
                    cost[until, new], _after_training(present[held], boot if lasts else 0) + paid
                )
    return float(cost[:, :, work].min())


def _after_training(
    cost: np.ndarray[tuple[int], np.dtype[np.float64]], minutes: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the cost after so many more minutes of training, at most all of it."""
    if minutes == 0:
        return cost
    shifted = np.full_like(cost, np.inf)
    shifted[minutes:] = cost[:-minutes]
    shifted[-1] = min(shifted[-1], float(cost[-minutes - 1 :].min()))
    return shifted


def _lower_in_place(cost: Costs, other: Costs) -> None:
    """Replace the costs by the lower of two, in place."""
    np.minimum(cost, other, out=cost)


def outcomes(
    results: Sequence[JobResult], zones: Mapping[str, CapacityTrace], slack: float
) -> list[Outcome]:
    """Return the outcome of each counted job."""
    job_outcomes = []
    for job in results[WARM:]:
        deadline = job.submitted_s + slack * TRAINING_SECONDS
        training_entries = [entry for entry in job.timeline if entry.gpus]
        trained = sum(entry.to_s - entry.from_s for entry in training_entries)
        on_demand = sum(
            entry.to_s - entry.from_s for entry in training_entries if "on-demand" in entry.offer
        )
        job_outcomes.append(
            Outcome(
                late_seconds=job.finished_s - deadline,
                finish_share=job.completion_seconds / TRAINING_SECONDS,
                usd=job.cost_usd,
                clairvoyant_usd=clairvoyant_usd(zones, job.submitted_s, deadline),
                restarts=job.restarts,
                on_demand_share=on_demand / trained,
            )
        )
    return job_outcomes


def main() -> None:
    """Print how the deadlines were kept and at which cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slack", type=float, default=1.5)
    parser.add_argument("--jobs", type=int, default=80)
    options = parser.parse_args()
    data = data_folder("spot, hetero and pollux")
    zones = read_zones(data)
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    results = simulate(profiles, zones, Jobs(options.slack, options.jobs))
    job_outcomes = outcomes(results, zones, options.slack)
    lateness = sorted(outcome.late_seconds for outcome in job_outcomes)
    kept_count = sum(seconds <= 0 for seconds in lateness)
    usd, clairvoyant = (
        sum(outcome.usd for outcome in job_outcomes),
        sum(outcome.clairvoyant_usd for outcome in job_outcomes),
    )
    print(
        f"deadlines kept: {kept_count} of {len(job_outcomes)}; the latest by {lateness[-1]:.0f} s"
    )
    print(f"spent {usd:.2f} $, clairvoyant {clairvoyant:.2f} $: {usd / clairvoyant:.3f} x")
    finish = np.percentile([outcome.finish_share for outcome in job_outcomes], (5, 50, 95))
    print(
        f"done after {', '.join(f'{share:.2f}' for share in finish)} x the training (5, 50, 95 %)"
    )
    share = float(np.mean([outcome.on_demand_share for outcome in job_outcomes]))
    print(
        f"on-demand {share:.0%} of the time, "
        f"{np.mean([outcome.restarts for outcome in job_outcomes]):.1f} restarts"
    )


if __name__ == "__main__":
    main()
