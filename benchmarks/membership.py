"""What joins, planned leaves, kills and a lost lighthouse cost a running job.

    python benchmarks/membership.py [--rounds 3] [--state-gb 0] [--engine quorum|roster] [--json]

One replica trains on, with steps of 20 ms, while others join it and leave it or are killed: real
processes of the training library on the loopback, each on its own core, and a real lighthouse
with the times that `castor serve` gives it. A pause is the longest time between two steps of the
replica that stays, less a usual one.

With `--state-gb` so many gigabytes are added to the state, and joins and planned leaves alone are
measured: the target is that a join lasts 1 s longer than the transfer of the state, at most.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.training import Engine, TrainingDirective
from tests.training import fleet as fleets
from tests.training.fleet import Fleet, Lighthouse, ReplicaProcess, wait_until

STEP_SECONDS = 0.02
SETTLED_SECONDS = 1.5
AWAY_SECONDS = 2.0
SEED = 0

Line = dict[str, Any]


@dataclass
class Figure:
    """What was measured several times over."""

    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """Median and worst, as cells of a table."""
        digits = {"s": 2, "ms": 1, "steps": 0}[self.unit]
        both = (statistics.median(self.values), max(self.values))
        return " | ".join(f"{value:.{digits}f} {self.unit}" for value in both)


Figures = dict[str, Figure]


class Watched:
    """A replica, and what it has written down so far."""

    def __init__(self, replica: ReplicaProcess) -> None:
        self.replica = replica
        self._read_bytes = 0
        self._lines: list[Line] = []

    def lines(self, kind: str) -> list[Line]:
        """All of one kind."""
        if self.replica.trace.exists():
            with self.replica.trace.open("rb") as trace:
                trace.seek(self._read_bytes)
                whole = [line for line in trace if line.endswith(b"\n")]
            self._read_bytes += sum(map(len, whole))
            self._lines += map(json.loads, whole)
        return [line for line in self._lines if line["kind"] == kind]

    def steps(self, since: float = 0.0) -> list[Line]:
        """The committed steps after a moment."""
        every = self.lines("step")
        return [line for line in every if line["committed"] and line["at"] > since]

    @property
    def replicas(self) -> int:
        """With how many it trains now, itself included."""
        rounds = self.lines("round")
        return int(rounds[-1]["replicas"]) if rounds else 0

    def pause(self, since: float, until: float = math.inf) -> float:
        """The longest time between two steps, in seconds, less the usual one."""
        times: list[float] = [line["at"] for line in self.steps()]
        gaps = list(itertools.pairwise(times))
        usual = statistics.median(b - a for a, b in gaps)
        return max(b - a for a, b in gaps if b > since and a < until) - usual

    def exchanges(self, replicas: int) -> dict[int, float]:
        """The seconds that rounds began with, by their first step, where nobody came or went."""
        return {
            later["step"]: later["seconds"]
            for before, later in itertools.pairwise(self.lines("round"))
            if before["replicas"] == later["replicas"] == replicas
        }


class Job:
    """One job in the course of the measurement; `stays` is the replica that is watched."""

    def __init__(
        self, directory: Path, chance: random.Random, engine: Engine, state_gigabytes: float
    ) -> None:
        fleets.SCRIPTS = Path(__file__).parent / "scripts"
        lighthouse = Lighthouse(directory / "lighthouses", engine=engine)
        self._fleet = Fleet(directory, lighthouse)
        self._frozen_bytes = int(state_gigabytes * 1e9)
        self._cores = sorted(os.sched_getaffinity(0))
        self._watched: list[Watched] = []
        self._chance = chance
        self.figures: Figures = {}
        self.stays = self._start(0)
        wait_until(lambda: len(self.stays.steps()) > 50, 60, "the first replica")
        self._settle()

    def join(self) -> Watched:
        """Have another replica join."""
        began = time.time()
        joiner = self._start(1)
        wait_until(joiner.steps, 120, "a joiner's first step")
        wait_until(lambda: self.stays.replicas == 2, 30, "two replicas")
        self._settle()
        (ready,) = joiner.lines("ready")
        first = joiner.steps()[0]["at"]
        (transfer,) = joiner.lines("transfer")
        pause = self.stays.pause(began)
        self._note("join: the running replica stands still", pause)
        self._note("join: of that, the transfer of the state", transfer["seconds"])
        self._note("join: of that, all else", pause - transfer["seconds"])
        self._note("join: from imports done to the joiner's first step", first - ready["at"])
        return joiner

    def drain(self, leaver: Watched) -> None:
        """Have a replica leave as planned."""
        began = time.time()
        leaver.replica.direct(TrainingDirective(drain=True))
        leaver.replica.process.wait(30)
        left = time.time()
        wait_until(lambda: self.stays.replicas == 1, 30, "one replica")
        self._settle()
        self._note("drain: the other stands still", self.stays.pause(began))
        self._note("drain: until the leaver's process has ended", left - began)

    def kill(self, victim: Watched) -> None:
        """Kill a replica with SIGKILL."""
        killed = time.time()
        victim.replica.kill()
        wait_until(lambda: len(self.stays.steps(killed)) > 50, 60, "steps after the kill")
        self._settle()
        after = [line for line in self.stays.lines("step") if line["at"] > killed]
        lost = sum(not line["committed"] for line in after)
        self._note("kill -9 of a peer: steps lost", lost, "steps")
        self._note("kill -9 of a peer: no step for", self.stays.pause(killed))

    def lose_lighthouse(self) -> None:
        """Kill the lighthouse with SIGKILL; another takes its place some time later."""
        killed = time.time()
        self._fleet.lighthouse.kill()
        time.sleep(AWAY_SECONDS)
        back = time.time()
        self._fleet.lighthouse.start()
        wait_until(lambda: len(self.stays.steps(back)) > 50, 60, "steps after the lighthouse")
        self._settle()
        away = self.stays.pause(killed, back)
        self._note("kill -9 of the lighthouse: no step for, while it is away", away)
        self._note(
            "kill -9 of the lighthouse: no step for, once it is back", self.stays.pause(back)
        )

    def rounds(self) -> None:
        """Take down what rounds began with, where nobody came or went."""
        for replicas in (1, 2):
            of_each = [each.exchanges(replicas) for each in self._watched]
            seconds: dict[int, float] = {}
            for step, took in itertools.chain.from_iterable(each.items() for each in of_each):
                # Who comes last waits for nobody.
                seconds[step] = min(took, seconds.get(step, took))
            for took in seconds.values():
                self._note(f"a round's exchange, replicas: {replicas}", 1e3 * took, "ms")

    def stop(self) -> None:
        """End all processes."""
        self._fleet.stop()

    def _start(self, place: int) -> Watched:
        core = self._cores[place % len(self._cores)]
        replica = self._fleet.start(
            "members.py",
            STEP_SECONDS=str(STEP_SECONDS),
            CASTOR_DEVICES=str(core),
            FROZEN_BYTES=str(self._frozen_bytes),
        )
        self._watched.append(Watched(replica))
        return self._watched[-1]

    def _settle(self) -> None:
        """Let steps be usual again; what comes next comes at no particular moment of a step."""
        time.sleep(SETTLED_SECONDS + self._chance.uniform(0.0, 0.3))

    def _note(self, what: str, value: float, unit: str = "s") -> None:
        self.figures.setdefault(what, Figure(unit)).values.append(value)


def measure(rounds: int, engine: Engine, state_gigabytes: float) -> Figures:
    """All figures of so many rounds of joins, drains and kills; without kills for large states."""
    with tempfile.TemporaryDirectory() as directory:
        job = Job(Path(directory), random.Random(SEED), engine, state_gigabytes)
        try:
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


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--state-gb", type=float, default=0.0, help="added to a state of 12 MB")
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.QUORUM)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds, arguments.engine, arguments.state_gb)
    if arguments.json:
        print(json.dumps({what: asdict(figure) for what, figure in figures.items()}, indent=2))
        return
    print("| what | median | worst | times |")
    print("|---|---|---|---|")
    for what, figure in figures.items():
        print(f"| {what} | {figure.shown} | {len(figure.values)} |")


if __name__ == "__main__":
    main()
