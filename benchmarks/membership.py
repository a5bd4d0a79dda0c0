"""Pauses of a running job at joins, planned leaves, kills and the loss of the lighthouse.

    python benchmarks/membership.py [--rounds 3] [--state-gb 0] [--engine quorum|roster] [--json]
    python benchmarks/membership.py --round-trip-ms 50 [--pairs 12] [--engine ...] [--json]

One replica trains throughout, with steps of 20 ms, while others join it and leave or are killed.
Replicas are real processes of the training library on the loopback, each on its own core, with a
real lighthouse that has the timeouts of `castor serve`. A pause is the longest time between two
steps of the remaining replica, less a usual one.

With `--state-gb` so many gigabytes are added to the state, and only joins and planned leaves are
measured: the target is that a join takes at most 1 s longer than the transfer of the state.

With `--round-trip-ms` two replicas train and reach the lighthouse through a proxy, which delays
each direction by half of that in every second block of 2.5 s, in the order ABBA. The output is the
median step of blocks without and with the delay, and the mean difference of pairs of blocks with
its standard error: the target is a difference below 1 ms.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from delay_proxy import DelayProxy

from autoscaler.domain.training import Engine, TrainingDirective
from tests.training import fleet as fleets
from tests.training.fleet import Fleet, Lighthouse, ReplicaProcess, wait_until

STEP_SECONDS = 0.02
SETTLED_SECONDS = 1.5
AWAY_SECONDS = 2.0
BLOCK_SECONDS = 2.5
# Seconds after a change of the delay by which messages under way have arrived.
CHANGED_SECONDS = 0.25
SEED = 0

Line = dict[str, Any]


@dataclass
class Figure:
    """Repeated measurements of one quantity."""

    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """Median and worst value, as cells of a table."""
        digits = {"s": 2, "ms": 1, "steps": 0}[self.unit]
        median_and_worst = (statistics.median(self.values), max(self.values))
        return " | ".join(f"{value:.{digits}f} {self.unit}" for value in median_and_worst)


Figures = dict[str, Figure]


class Watched:
    """Replica, and the lines of its trace so far."""

    def __init__(self, replica: ReplicaProcess) -> None:
        self.replica = replica
        self._read_bytes = 0
        self._lines: list[Line] = []

    def lines(self, kind: str) -> list[Line]:
        """Return the lines of one kind so far."""
        if self.replica.trace.exists():
            with self.replica.trace.open("rb") as trace:
                trace.seek(self._read_bytes)
                complete = [line for line in trace if line.endswith(b"\n")]
            self._read_bytes += sum(map(len, complete))
            self._lines += map(json.loads, complete)
        return [line for line in self._lines if line["kind"] == kind]

    def steps(self, since: float = 0.0) -> list[Line]:
        """Return the committed steps after a moment."""
        steps = self.lines("step")
        return [line for line in steps if line["committed"] and line["at"] > since]

    @property
    def replicas(self) -> int:
        """Number of replicas that train now, itself included."""
        rounds = self.lines("round")
        return int(rounds[-1]["replicas"]) if rounds else 0

    def pause(self, since: float, until: float = math.inf) -> float:
        """Return the longest time between two steps in seconds, less the median one."""
        times: list[float] = [line["at"] for line in self.steps()]
        gaps = list(itertools.pairwise(times))
        usual = statistics.median(end - start for start, end in gaps)
        return max(end - start for start, end in gaps if end > since and start < until) - usual

    def exchanges(self, replicas: int) -> dict[int, float]:
        """Return the seconds of the exchange at each round's start, by first step.

        Only rounds without a change of members count.
        """
        return {
            later["step"]: later["seconds"]
            for before, later in itertools.pairwise(self.lines("round"))
            if before["replicas"] == later["replicas"] == replicas
        }


class Job:
    """Measured job; `stays` is the replica that trains throughout."""

    def __init__(
        self, directory: Path, generator: random.Random, engine: Engine, state_gigabytes: float
    ) -> None:
        fleets.SCRIPTS = Path(__file__).parent / "scripts"
        lighthouse = Lighthouse(directory / "lighthouses", engine=engine)
        self._fleet = Fleet(directory, lighthouse)
        self.figures: Figures = {}
        self._frozen_bytes = int(state_gigabytes * 1e9)
        self._cores = sorted(os.sched_getaffinity(0))
        self._watched: list[Watched] = []
        self._generator = generator

    def start(self) -> None:
        """Start the replica that stays."""
        self.stays = self._start(0)
        wait_until(lambda: len(self.stays.steps()) > 50, "the first replica", 60)
        self._settle()

    def join(self) -> Watched:
        """Start another replica and measure its join."""
        began = time.time()
        joiner = self._start(1)
        wait_until(joiner.steps, "a joiner's first step", 120)
        wait_until(lambda: self.stays.replicas == 2, "two replicas", 30)
        self._settle()
        (ready,) = joiner.lines("ready")
        first_step_at = joiner.steps()[0]["at"]
        (transfer,) = joiner.lines("transfer")
        pause = self.stays.pause(began)
        self._note("join: the running replica stands still", pause)
        self._note("join: of that, the transfer of the state", transfer["seconds"])
        self._note("join: of that, all else", pause - transfer["seconds"])
        self._note(
            "join: from imports done to the joiner's first step", first_step_at - ready["at"]
        )
        return joiner

    def drain(self, leaver: Watched) -> None:
        """Make a replica leave as planned, and measure the pause."""
        began = time.time()
        leaver.replica.direct(TrainingDirective(drain=True))
        leaver.replica.process.wait(30)
        left_at = time.time()
        wait_until(lambda: self.stays.replicas == 1, "one replica", 30)
        self._settle()
        self._note("drain: the other stands still", self.stays.pause(began))
        self._note("drain: until the leaver's process has ended", left_at - began)

    def kill(self, victim: Watched) -> None:
        """Kill a replica with SIGKILL, and measure the lost steps and the pause."""
        killed = time.time()
        victim.replica.kill()
        wait_until(lambda: len(self.stays.steps(killed)) > 50, "steps after the kill", 60)
        self._settle()
        after = [line for line in self.stays.lines("step") if line["at"] > killed]
        lost = sum(not line["committed"] for line in after)
        self._note("kill -9 of a peer: steps lost", lost, "steps")
        self._note("kill -9 of a peer: no step for", self.stays.pause(killed))

    def lose_lighthouse(self) -> None:
        """Kill the lighthouse with SIGKILL, restart it later, and measure the pauses."""
        killed = time.time()
        self._fleet.lighthouse.kill()
        time.sleep(AWAY_SECONDS)
        back = time.time()
        self._fleet.lighthouse.start()
        wait_until(lambda: len(self.stays.steps(back)) > 50, "steps after the lighthouse", 60)
        self._settle()
        away = self.stays.pause(killed, back)
        self._note("kill -9 of the lighthouse: no step for, while it is away", away)
        self._note(
            "kill -9 of the lighthouse: no step for, once it is back", self.stays.pause(back)
        )

    def reach_lighthouse_by(self, proxy: DelayProxy) -> None:
        """Let replicas that start from now on reach the lighthouse through the proxy."""
        scheme = urlsplit(self._fleet.lighthouse.address).scheme
        address = f"{scheme}://127.0.0.1:{proxy.port}"
        self._fleet.setup = replace(self._fleet.setup, lighthouse=address)

    @property
    def lighthouse_port(self) -> int:
        """Port of the lighthouse itself."""
        return urlsplit(self._fleet.lighthouse.address).port or 0

    def block_ms(self) -> float:
        """Return the median step of the next block, in ms.

        Raises:
            RuntimeError: the other replica is no longer a member.
        """
        time.sleep(CHANGED_SECONDS)
        began = time.time()
        time.sleep(BLOCK_SECONDS)
        times = [line["at"] for line in self.stays.steps(began)]
        if self.stays.replicas != 2:
            raise RuntimeError("a replica has left in the course of the measurement")
        return 1e3 * statistics.median(
            later - earlier for earlier, later in itertools.pairwise(times)
        )

    def rounds(self) -> None:
        """Record the exchanges of rounds without a change of members."""
        for replicas in (1, 2):
            exchanges = [replica.exchanges(replicas) for replica in self._watched]
            seconds: dict[int, float] = {}
            for step, took in itertools.chain.from_iterable(
                by_step.items() for by_step in exchanges
            ):
                # The last replica of a round does not wait, so the least time is the exchange's.
                seconds[step] = min(took, seconds.get(step, took))
            for took in seconds.values():
                self._note(f"a round's exchange, replicas: {replicas}", 1e3 * took, "ms")

    def stop(self) -> None:
        """End all processes."""
        self._fleet.stop()

    def _start(self, index: int) -> Watched:
        """Start a replica on a core of its own."""
        core = self._cores[index % len(self._cores)]
        replica = self._fleet.start(
            "members.py",
            STEP_SECONDS=str(STEP_SECONDS),
            CASTOR_DEVICES=str(core),
            FROZEN_BYTES=str(self._frozen_bytes),
        )
        self._watched.append(Watched(replica))
        return self._watched[-1]

    def _settle(self) -> None:
        """Wait until steps are usual again, plus a random part of a step."""
        time.sleep(SETTLED_SECONDS + self._generator.uniform(0.0, 0.3))

    def _note(self, name: str, value: float, unit: str = "s") -> None:
        """Add a measurement to a figure."""
        self.figures.setdefault(name, Figure(unit)).values.append(value)


def measure(rounds: int, engine: Engine, state_gigabytes: float) -> Figures:
    """Return all figures of so many rounds; without kills if state is added."""
    with tempfile.TemporaryDirectory() as directory:
        job = Job(Path(directory), random.Random(SEED), engine, state_gigabytes)
        try:
            job.start()
            for _ in range(rounds):
                job.drain(job.join())
                if state_gigabytes:
                    continue
                peer = job.join()
                job.lose_lighthouse()
                job.kill(peer)
            job.rounds()
        finally:
            job.stop()
    return job.figures


def delayed(pairs: int, engine: Engine, round_trip_ms: float) -> dict[str, float]:
    """Return median steps in ms without and with the delay, and their mean difference."""
    blocks: list[tuple[float, float]] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        job = Job(directory, random.Random(SEED), engine, 0.0)
        stack.callback(job.stop)
        proxy = stack.enter_context(DelayProxy(job.lighthouse_port))
        job.reach_lighthouse_by(proxy)
        job.start()
        job.join()
        for number in range(pairs):
            pair: dict[bool, float] = {}
            for is_far in (False, True) if number % 2 == 0 else (True, False):
                proxy.delay_seconds = round_trip_ms / 2e3 if is_far else 0.0
                pair[is_far] = job.block_ms()
            blocks.append((pair[False], pair[True]))
    differences = [far - near for near, far in blocks]
    return {
        "near_ms": statistics.median(near for near, _ in blocks),
        "far_ms": statistics.median(far for _, far in blocks),
        "difference_ms": statistics.fmean(differences),
        "standard_error_ms": statistics.stdev(differences) / math.sqrt(pairs),
        "pairs": pairs,
    }


def print_delayed(row: dict[str, float], round_trip_ms: float) -> None:
    """Print the table of `delayed`."""
    print(f"| step, ms | + {round_trip_ms:g} ms to the lighthouse, ms | difference, ms | pairs |")
    print("|---|---|---|---|")
    difference = f"{row['difference_ms']:+.3f} (standard error {row['standard_error_ms']:.3f})"
    print(f"| {row['near_ms']:.3f} | {row['far_ms']:.3f} | {difference} | {row['pairs']} |")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--state-gb", type=float, default=0.0, help="gigabytes added to a state of 12 MB"
    )
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.QUORUM)
    parser.add_argument(
        "--round-trip-ms", type=float, help="delay added between replicas and lighthouse"
    )
    parser.add_argument(
        "--pairs", type=int, default=12, help="pairs of blocks with --round-trip-ms"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.pairs < 2 or arguments.pairs % 2:
        parser.error(
            f"--pairs={arguments.pairs}: must be an even number of at least 2, for the order ABBA"
        )
    if arguments.round_trip_ms is not None:
        if not 0 <= arguments.round_trip_ms < math.inf:
            parser.error(
                f"--round-trip-ms={arguments.round_trip_ms:g}: must be finite and at least 0"
            )
        row = delayed(arguments.pairs, arguments.engine, arguments.round_trip_ms)
        if arguments.json:
            print(json.dumps(row, indent=2))
        else:
            print_delayed(row, arguments.round_trip_ms)
        return
    figures = measure(arguments.rounds, arguments.engine, arguments.state_gb)
    if arguments.json:
        print(json.dumps({name: asdict(figure) for name, figure in figures.items()}, indent=2))
        return
    print("| what | median | worst | times |")
    print("|---|---|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure.shown} | {len(figure.values)} |")


if __name__ == "__main__":
    main()
