"""Which zone to ask for spot instances: beliefs of the controller against other ways to choose.

    CASTOR_DATA=... python benchmarks/spot_zones.py

A job of one instance needs 16 hours of useful time. One zone is asked at a time; a refusal takes
one, five or fifteen minutes to come, and a new instance boots before it is useful. The zones are
the traces of V100 instances of "Can't Be Late" (Wu et al., NSDI'24), from many offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from data_folder import data_folder
from numpy.random import Generator

from autoscaler.domain.offer import Purchase
from autoscaler.market.zones import (
    Ask,
    Holding,
    Place,
    Seen,
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
    """One job, what it has seen of the zones, and the chance it draws from."""

    zones: Sequence[CapacityTrace]
    chance: Generator
    now: float = 0.0
    zone: int | None = None
    launched: float = 0.0
    last: int | None = None
    asks: list[list[Ask]] = field(default_factory=list)
    holdings: list[list[Holding]] = field(default_factory=list)
    useful: float = 0.0
    refusal: float = TICK_SECONDS
    tries: int = 0

    def is_there(self, zone: int) -> bool:
        """Whether an instance is to be had, and stays."""
        return self.zones[zone].available(self.now) > 0

    def step(self, choose: Choice) -> bool:
        """One minute; False if the job gives up."""
        if self.zone is not None and not self.is_there(self.zone):
            self.holdings[self.zone].append(Holding(self.launched, self.now, True))
            self.last, self.zone, self.tries = self.zone, None, 0
        if self.zone is None:
            asked = choose(self)
            if asked is None:
                return False
            is_filled = self.is_there(asked)
            self.asks[asked].append(Ask(self.now, is_filled))
            if is_filled:
                self.zone, self.launched = asked, self.now
            else:
                self.last, self.tries = asked, self.tries + 1
                self.now += self.refusal - TICK_SECONDS
        elif self.now - self.launched >= BOOT_SECONDS:
            self.useful += TICK_SECONDS
        self.now += TICK_SECONDS
        return True


def eager_random(job: Job) -> int | None:
    """Any zone but the one that was left or refused last."""
    others = [zone for zone in range(len(job.zones)) if zone != job.last]
    return int(job.chance.choice(others))


def same_zone_three_times(job: Job) -> int | None:
    """The zone that it was in, until that has refused three times."""
    zone = 0 if job.last is None else job.last
    return zone if job.tries < 3 else None


def believed(job: Job) -> int | None:
    """The zone of the most useful time, as the controller believes."""
    places = [
        Place("aws", "p3.2xlarge", str(zone), Purchase.SPOT) for zone in range(len(job.zones))
    ]
    seen = {
        place: Seen(tuple(job.asks[zone]), tuple(job.holdings[zone]))
        for zone, place in enumerate(places)
    }
    known = beliefs(seen, dict.fromkeys(places, 0.0), job.now)
    shares = [known[place].useful_share(BOOT_SECONDS, job.refusal) for place in places]
    return shares.index(max(shares))


def optimum(zones: Sequence[CapacityTrace], start: float) -> float:
    """The earliest end of who knows the traces: by dynamic programming over minutes."""
    now, boot = start, round(BOOT_SECONDS / TICK_SECONDS)
    useful = np.zeros((len(zones), boot + 1)) - np.inf
    best = 0.0
    while best < USEFUL_SECONDS:
        older = useful
        useful = np.full_like(older, -np.inf)
        for zone, trace in enumerate(zones):
            if trace.available(now) > 0:
                useful[zone, 0] = best
                useful[zone, 1:] = older[zone, :-1]
                useful[zone, -1] = max(useful[zone, -1], older[zone, -1] + TICK_SECONDS)
        best = max(best, float(useful.max()))
        now += TICK_SECONDS
    return now - start


def completion_seconds(job: Job, choose: Choice) -> float:
    """When the job is done, infinite if it gives up."""
    while job.useful < USEFUL_SECONDS:
        if not job.step(choose) or job.now > FAILED_AFTER_SECONDS:
            return np.inf
    return job.now


def main() -> None:
    """Print what each way to choose takes on average."""
    data = data_folder("spot")
    paths = sorted((data / "spot").glob("*/*v100*.json"))
    traces = [read_capacity_trace(path) for path in paths]
    starts = np.random.default_rng(1).uniform(0.0, 45 * 86400.0, RUNS)
    moments = [[trace.shifted(float(start)) for trace in traces] for start in starts]
    best = float(np.mean([optimum(zones, 0.0) for zones in moments]))
    print(f"optimum {best / 60:.0f} min")
    for refusal in REFUSALS_SECONDS:
        for choose in (believed, eager_random, same_zone_three_times):
            seconds = [
                completion_seconds(_job(zones, seed, refusal), choose)
                for seed, zones in enumerate(moments)
            ]
            _print(f"{choose.__name__}, {refusal:.0f} s a refusal", seconds, best)


def _job(zones: Sequence[CapacityTrace], seed: int, refusal: float) -> Job:
    unseen: tuple[list[list[Ask]], list[list[Holding]]] = (
        [[] for _ in zones],
        [[] for _ in zones],
    )
    return Job(
        zones, np.random.default_rng(seed), asks=unseen[0], holdings=unseen[1], refusal=refusal
    )


def _print(name: str, seconds: Sequence[float], best: float) -> None:
    ended = [each for each in seconds if np.isfinite(each)]
    if not ended:
        print(f"{name:40} all {len(seconds)} failed")
        return
    mean = float(np.mean(ended))
    failed = len(seconds) - len(ended)
    print(f"{name:40} {mean / 60:6.0f} min, {mean / best:.2f} x optimum, {failed} failed")


if __name__ == "__main__":
    main()
