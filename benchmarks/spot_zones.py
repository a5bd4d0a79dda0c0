"""Choice of the zone of spot instances: the controller's estimates against simple rules.

    CASTOR_DATA=... python benchmarks/spot_zones.py

A job of one instance needs 16 hours of useful time. One zone is asked at a time. A refusal arrives
after one, five or fifteen minutes, and a new instance boots before it is useful. The zones are the
traces of V100 instances of "Can't Be Late" (Wu et al., NSDI'24), from many offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from data_folder import data_folder
from numpy.random import Generator

from autoscaler.domain.offer import Purchase
from autoscaler.market.zones import (
    HoldingPeriod,
    LaunchAttempt,
    PlaceObservations,
    PurchasePlace,
    beliefs,
)
from providers.simulated.capacity import CapacityTrace, read_capacity_trace

TICK_SECONDS = 60.0
BOOT_SECONDS = 180.0
USEFUL_SECONDS = 16 * 3600.0
RUNS = 60
FAILED_AFTER_SECONDS = 40 * 86400.0
REFUSALS_SECONDS = (60.0, 300.0, 900.0)

Choice = Callable[["Job"], int | None]


@dataclass
class Job:
    """Job with its history of the zones and its random generator; times are in seconds."""

    zones: Sequence[CapacityTrace]
    chance: Generator
    now: float = 0.0
    zone: int | None = None
    launched: float = 0.0
    last: int | None = None
    asks: list[list[LaunchAttempt]] = field(default_factory=list)
    holdings: list[list[HoldingPeriod]] = field(default_factory=list)
    useful: float = 0.0
    refusal: float = TICK_SECONDS
    tries: int = 0

    def is_there(self, zone: int) -> bool:
        """Return whether an instance is available in the zone, or stays."""
        return self.zones[zone].available(self.now) > 0

    def step(self, choose: Choice) -> bool:
        """Advance by one minute; return False if the job gives up."""
        if self.zone is not None and not self.is_there(self.zone):
            self.holdings[self.zone].append(HoldingPeriod(self.launched, self.now, True))
            self.last, self.zone, self.tries = self.zone, None, 0
        if self.zone is None:
            chosen_zone = choose(self)
            if chosen_zone is None:
                return False
            is_filled = self.is_there(chosen_zone)
            self.asks[chosen_zone].append(LaunchAttempt(self.now, is_filled))
            if is_filled:
                self.zone, self.launched = chosen_zone, self.now
            else:
                self.last, self.tries = chosen_zone, self.tries + 1
                self.now += self.refusal - TICK_SECONDS
        elif self.now - self.launched >= BOOT_SECONDS:
            self.useful += TICK_SECONDS
        self.now += TICK_SECONDS
        return True


def eager_random(job: Job) -> int | None:
    """Return a random zone, but not the one lost or refused last."""
    others = [zone for zone in range(len(job.zones)) if zone != job.last]
    return int(job.chance.choice(others))


def same_zone_three_times(job: Job) -> int | None:
    """Return the last zone; None after three refusals."""
    zone = 0 if job.last is None else job.last
    return zone if job.tries < 3 else None


def believed(job: Job) -> int | None:
    """Return the zone of the most useful time by the controller's estimates."""
    places = [
        PurchasePlace("aws", "p3.2xlarge", str(zone), Purchase.SPOT)
        for zone in range(len(job.zones))
    ]
    history = {
        place: PlaceObservations(tuple(job.asks[zone]), tuple(job.holdings[zone]))
        for zone, place in enumerate(places)
    }
    estimates = beliefs(history, dict.fromkeys(places, 0.0), job.now)
    shares = [estimates[place].useful_share(BOOT_SECONDS, job.refusal) for place in places]
    return shares.index(max(shares))


def optimum(zones: Sequence[CapacityTrace], start: float) -> float:
    """Return the least completion time with known traces, by dynamic programming over minutes."""
    now_seconds, boot = start, round(BOOT_SECONDS / TICK_SECONDS)
    useful = np.zeros((len(zones), boot + 1)) - np.inf
    best = 0.0
    while best < USEFUL_SECONDS:
        older = useful
        useful = np.full_like(older, -np.inf)
        for zone, trace in enumerate(zones):
            if trace.available(now_seconds) > 0:
                useful[zone, 0] = best
                useful[zone, 1:] = older[zone, :-1]
                useful[zone, -1] = max(useful[zone, -1], older[zone, -1] + TICK_SECONDS)
        best = max(best, float(useful.max()))
        now_seconds += TICK_SECONDS
    return now_seconds - start


def completion_seconds(job: Job, choose: Choice) -> float:
    """Return the completion time of the job; infinite if it gives up."""
    while job.useful < USEFUL_SECONDS:
        if not job.step(choose) or job.now > FAILED_AFTER_SECONDS:
            return np.inf
    return job.now


def main() -> None:
    """Print the mean completion time of each rule."""
    data = data_folder("spot")
    paths = sorted((data / "spot").glob("*/*v100*.json"))
    traces = [read_capacity_trace(path) for path in paths]
    starts = np.random.default_rng(1).uniform(0.0, 45 * 86400.0, RUNS)
    moments = [[trace.shifted(float(start)) for trace in traces] for start in starts]
    best = float(np.mean([optimum(zones, 0.0) for zones in moments]))
    print(f"optimum {best / 60:.0f} min")
    for refusal in REFUSALS_SECONDS:
        for rule in (believed, eager_random, same_zone_three_times):
            seconds = [
                completion_seconds(_new_job(zones, seed, refusal), rule)
                for seed, zones in enumerate(moments)
            ]
            _print_rule(f"{rule.__name__}, {refusal:.0f} s a refusal", seconds, best)


def _new_job(zones: Sequence[CapacityTrace], seed: int, refusal: float) -> Job:
    """Return a job without any history."""
    histories: tuple[list[list[LaunchAttempt]], list[list[HoldingPeriod]]] = (
        [[] for _ in zones],
        [[] for _ in zones],
    )
    return Job(
        zones,
        np.random.default_rng(seed),
        asks=histories[0],
        holdings=histories[1],
        refusal=refusal,
    )


def _print_rule(name: str, seconds: Sequence[float], best: float) -> None:
    """Print the mean time, its ratio to the optimum, and the failures of a rule."""
    ended = [duration for duration in seconds if np.isfinite(duration)]
    if not ended:
        print(f"{name:40} all {len(seconds)} failed")
        return
    mean = float(np.mean(ended))
    failed = len(seconds) - len(ended)
    print(f"{name:40} {mean / 60:6.0f} min, {mean / best:.2f} x optimum, {failed} failed")


if __name__ == "__main__":
    main()
