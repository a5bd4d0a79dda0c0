"""Kill random replicas of a training again and again, and compare it with one left in peace.

    python benchmarks/soak.py [DIRECTORY] [--kills 2000] [--minutes M] [--commits 20]
        [--engine quorum|roster] [--replicas 3] [--seed 0] [--json]

Three replicas train a small network in 64 bits, at a fixed batch with logical ranks: real
processes of the training library, with a real lighthouse. After some committed steps, 1 to twice
`--commits` by chance, one of them is killed with SIGKILL and another one is started in its place.
For three of four kills the steps are counted once all replicas train; the others may meet a
replica that joins, or its peers meanwhile. The last one that trains is never killed.

The parameters hold an account of the examples that training has learnt from. Checked after each
pass: each example was in exactly one committed step of it; the loss is that of the same training
without any loss, to one part in 10^9; all replicas agree. No replica may end by itself, and no
time without a committed step may be longer than two minutes.

Everything is kept in DIRECTORY, build/soak by default. A run that has ended, after --minutes, by
Ctrl-C or by a crash, is gone on with by the same command, from the job's newest checkpoint; kills
add up over runs. Prints the sum. Exits with status 1 if a check has failed in any run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.training import Engine
from tests.training import fleet as fleets
from tests.training.fleet import Fleet, Lighthouse, ReplicaProcess, Roster

SCRIPT = "soaked.py"
SCRIPTS = Path(__file__).parent / "scripts"
# Of the loss, in shares of it.
TOLERANCE = 1e-9
HANG_SECONDS = 120.0
LOOK_SECONDS = 0.005
CHECKPOINT_SECONDS = 10.0
# Of the kills, those that come when all replicas train.
CALM_SHARE = 0.75

Line = dict[str, Any]


class Broken(Exception):
    """A check that failed."""


@dataclass(frozen=True)
class Kept:
    """The files of a soak, which outlive its runs."""

    directory: Path

    @property
    def kills(self) -> Path:
        """A line for each kill."""
        return self.directory / "kills.jsonl"

    @property
    def passes(self) -> Path:
        """A line of each replica for each pass."""
        return self.directory / "passes.jsonl"

    @property
    def undisturbed(self) -> Path:
        """A line for each pass of the training left in peace."""
        return self.directory / "undisturbed.jsonl"

    @property
    def runs(self) -> Path:
        """A line for each run that has ended."""
        return self.directory / "runs.jsonl"

    @property
    def broken(self) -> Path:
        """A line for each check that failed while replicas ran."""
        return self.directory / "broken.jsonl"

    def add(self, path: Path, line: Line) -> None:
        """Add a line to one of the files."""
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self, path: Path) -> list[Line]:
        """Return all whole lines of one of the files."""
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


class Member:
    """A replica, and the last step that it has committed."""

    def __init__(self, replica: ReplicaProcess) -> None:
        self.replica = replica
        self._step_file = step_file(replica.log.parent, replica.name)

    @property
    def step(self) -> int:
        """The number of the last step that it has committed; 0 before the first."""
        try:
            return int(self._step_file.read_text() or 0)
        except FileNotFoundError:
            return 0

    def bury(self) -> None:
        """End it, and remove what it has left."""
        self.replica.kill()
        self.replica.close()
        self.replica.messages.clear()
        for path in (self.replica.log, self._step_file):
            path.unlink(missing_ok=True)


def step_file(directory: Path, name: str) -> Path:
    """Return where a replica writes down the number of its last committed step."""
    return directory / f"{name}.step"


class Soak:
    """One run: replicas that are killed and replaced."""

    def __init__(self, kept: Kept, arguments: argparse.Namespace) -> None:
        self._kept = kept
        self._arguments = arguments
        self._members: list[Member] = []
        self.kills = len(kept.lines(kept.kills))
        fleets.SCRIPTS = SCRIPTS
        place = kept.directory / "replicas"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self._place = place
        self._fleet = Fleet(
            place,
            self._lighthouse(),
            checkpoint_directory=str(kept.directory / "checkpoints"),
            checkpoint_interval_seconds=CHECKPOINT_SECONDS,
        )

    def _lighthouse(self) -> Lighthouse:
        """Return the engine's server; one that an earlier run has left is found again."""
        place = self._kept.directory / f"lighthouses-{self._arguments.engine}"
        if self._arguments.engine == Engine.ROSTER:
            return Roster(place)
        return Lighthouse(place, Engine.QUORUM)

    def run(self, until: float) -> Iterator[int]:
        """Kill and replace until enough are killed or it is `until`, and yield each sum of kills.

        Raises:
            Broken: a replica has ended by itself, or training stands still.
        """
        self._fill()
        while self.kills < self._arguments.kills and time.monotonic() < until:
            chance = random.Random(f"{self._arguments.seed} {self.kills}")
            if chance.random() < CALM_SHARE:
                self._await_all()
            self._await_step(self._newest + chance.randint(1, 2 * self._arguments.commits))
            time.sleep(chance.uniform(0.0, 0.05))
            self._kill(chance)
            self._fill()
            yield self.kills

    def finish_pass(self) -> None:
        """Return once a pass has ended after the last kill."""
        before = len(self._kept.lines(self._kept.passes))
        began = time.monotonic()
        while len(self._kept.lines(self._kept.passes)) <= before:
            self._require_life(began)
            time.sleep(0.1)

    def stop(self) -> None:
        """End all processes."""
        self._fleet.stop()

    @property
    def _newest(self) -> int:
        return max(member.step for member in self._members)

    def _fill(self) -> None:
        while len(self._members) < self._arguments.replicas:
            name = f"r{len(self._fleet.replicas)}"
            replica = self._fleet.start(
                SCRIPT,
                DATA=str(write_digits(self._kept.directory)),
                LEDGER=str(self._kept.passes),
                STEP=str(step_file(self._place, name)),
                REPLICA=name,
                STEP_SECONDS=str(self._arguments.step_seconds),
            )
            self._members.append(Member(replica))

    @property
    def _training(self) -> list[Member]:
        """Those that have committed the newest step, or the one before it."""
        newest = self._newest
        return [member for member in self._members if 0 < newest <= member.step + 1]

    def _await_all(self) -> None:
        began = time.monotonic()
        while len(self._training) < len(self._members):
            self._require_life(began)
            time.sleep(LOOK_SECONDS)

    def _await_step(self, step: int) -> None:
        newest, since = self._newest, time.monotonic()
        while (now := self._newest) < step:
            if now != newest:
                newest, since = now, time.monotonic()
            self._require_life(since)
            time.sleep(LOOK_SECONDS)

    def _require_life(self, since: float) -> None:
        for member in self._members:
            status = member.replica.process.poll()
            if status is not None:
                raise Broken(f"{member.replica.name} ended by itself, with status {status}")
        if time.monotonic() - since > HANG_SECONDS:
            raise Broken(f"no step was committed within {HANG_SECONDS:.0f} s")

    def _kill(self, chance: random.Random) -> None:
        """Kill one of those without which another one trains on."""
        newest, trains = self._newest, self._training
        victims = [member for member in self._members if trains != [member]]
        victim = chance.choice(victims)
        killed = time.monotonic()
        victim_step = victim.step
        self._members.remove(victim)
        victim.bury()
        self.kills += 1
        survivors_step = self._newest
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "engine": self._arguments.engine,
            "step": newest,
            "trained": victim in trains,
            "members": len(trains),
        }
        self._fill()
        self._await_step(survivors_step + 1)
        line["seconds"] = time.monotonic() - killed
        line["lost"] = max(victim_step - survivors_step, 0)
        self._kept.add(self._kept.kills, line)

    def keep_evidence(self, broken: Broken) -> None:
        """Write down a check that failed, with the logs of the replicas that were alive."""
        logs = {each.replica.name: each.replica.log.read_text()[-4000:] for each in self._members}
        line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": str(broken)}
        self._kept.add(self._kept.broken, {**line, "kills": self.kills, "logs": logs})


@dataclass
class Found:
    """What all runs of a soak have found."""

    kills: dict[str, int]
    kills_of_members: int
    runs: int
    passes: int
    steps: int
    lines: int
    passes_without_line: int
    largest_difference: float
    final_loss: float
    undisturbed_final_loss: float
    pause_seconds_median: float
    pause_seconds_worst: float
    broken: list[str] = field(default_factory=list)


def write_digits(directory: Path) -> Path:
    """Return the file of the digits, which is written once, whole."""
    path = directory / "digits.npz"
    if not path.exists():
        digits, unfinished = load_digits(), directory / "unfinished.npz"
        np.savez(unfinished, data=digits.data, target=digits.target)
        unfinished.rename(path)
    return path


def train_undisturbed(kept: Kept, passes: int) -> dict[int, Line]:
    """Return the lines of each pass of the training left in peace, by the number of the pass."""
    known = {line["pass"]: line for line in kept.lines(kept.undisturbed)}
    if passes not in known:
        environment = {
            **os.environ,
            "DATA": str(write_digits(kept.directory)),
            "LEDGER": str(kept.undisturbed),
            "CHECKPOINTS": str(kept.directory / "undisturbed"),
            "PASSES": str(passes),
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("CASTOR_SOCKET", None)
        subprocess.run([sys.executable, str(SCRIPTS / SCRIPT)], env=environment, check=True)
    return {line["pass"]: line for line in kept.lines(kept.undisturbed)}


def broken_passes(lines: list[Line], undisturbed: dict[int, Line], examples: int) -> list[str]:
    """Return what is wrong with the lines of passes.

    Args:
        lines: of replicas, several of a pass.
        undisturbed: by the number of the pass.
        examples: of a pass.
    """
    found = []
    for line in lines:
        number = line["pass"]
        if not line["least"] == line["most"] == number or line["seen"] != number * examples:
            found.append(f"pass {number}: examples were not taken exactly {number} times: {line}")
        if difference(line, undisturbed[number]) > TOLERANCE:
            expected = undisturbed[number]["loss"]
            found.append(f"pass {number}: the loss is {line['loss']}, undisturbed {expected}")
    by_pass: dict[int, set[float]] = defaultdict(set)
    for line in lines:
        by_pass[line["pass"]].add(line["loss"])
    for number, losses in by_pass.items():
        if max(losses) - min(losses) > TOLERANCE * max(losses):
            found.append(f"pass {number}: replicas disagree on the loss: {sorted(losses)}")
    return found


def difference(line: Line, undisturbed: Line) -> float:
    """Return by what share of it a loss differs from that of the training left in peace."""
    return abs(line["loss"] / undisturbed["loss"] - 1.0)


def found_in(kept: Kept) -> Found:
    """Return what all runs have found so far."""
    kills, lines = kept.lines(kept.kills), kept.lines(kept.passes)
    last = max((line["pass"] for line in lines), default=0)
    undisturbed = train_undisturbed(kept, last) if last else {}
    seen = {line["pass"] for line in lines}
    one = next(iter(undisturbed.values()), {"seen": 0, "pass": 1})
    pauses = [kill["seconds"] for kill in kills if kill["trained"]] or [0.0]
    return Found(
        kills=dict(Counter(kill["engine"] for kill in kills)),
        kills_of_members=sum(kill["trained"] for kill in kills),
        runs=len(kept.lines(kept.runs)),
        passes=last,
        steps=max((kill["step"] for kill in kills), default=0),
        lines=len(lines),
        passes_without_line=last - len(seen),
        largest_difference=max(
            (difference(line, undisturbed[line["pass"]]) for line in lines), default=0.0
        ),
        final_loss=next((line["loss"] for line in reversed(lines) if line["pass"] == last), 0.0),
        undisturbed_final_loss=undisturbed[last]["loss"] if last else 0.0,
        pause_seconds_median=statistics.median(pauses),
        pause_seconds_worst=max(pauses),
        broken=[
            *(line["what"] for line in kept.lines(kept.broken)),
            *broken_passes(lines, undisturbed, one["seen"] // one["pass"]),
        ],
    )


@contextmanager
def running(kept: Kept, arguments: argparse.Namespace) -> Iterator[Soak]:
    """Have a run that ends with all of its processes, and is counted."""
    began = time.monotonic()
    soak = Soak(kept, arguments)
    before = soak.kills
    try:
        yield soak
    finally:
        soak.stop()
        seconds = time.monotonic() - began
        line = {"engine": arguments.engine, "kills": soak.kills - before, "seconds": seconds}
        kept.add(kept.runs, {"at": datetime.now(UTC).isoformat(timespec="seconds"), **line})


def one_run(kept: Kept, arguments: argparse.Namespace) -> None:
    """Kill until enough are killed or time is up; write down a check that fails."""
    until = time.monotonic() + 60 * arguments.minutes
    shown = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        running(kept, arguments) as soak,
        Progress(*shown, console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("", total=arguments.kills, completed=soak.kills)
        try:
            for kills in soak.run(until):
                progress.update(bar, completed=kills)
            soak.finish_pass()
        except Broken as broken:
            soak.keep_evidence(broken)


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", type=Path, default=Path("build/soak"))
    parser.add_argument("--kills", type=int, default=2000, help="of all runs together")
    parser.add_argument("--minutes", type=float, default=1e9, help="of this run, at most")
    parser.add_argument("--commits", type=int, default=20, help="between two kills, on average")
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], default="quorum")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--step-seconds", type=float, default=0.01, help="added to each share")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if min(arguments.kills, arguments.commits) < 1 or arguments.replicas < 2:
        parser.error("--kills and --commits: at least 1; --replicas: at least 2")
    return arguments


def main() -> None:
    """Go on with a soak, and print the sum of its runs."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    kept = Kept(arguments.directory.resolve())
    kept.directory.mkdir(parents=True, exist_ok=True)
    write_digits(kept.directory)
    if len(kept.lines(kept.kills)) < arguments.kills and not kept.broken.exists():
        one_run(kept, arguments)
    found = found_in(kept)
    if arguments.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print_found(found, arguments.kills)
    raise SystemExit(1 if found.broken else 0)


def print_found(found: Found, wanted: int) -> None:
    """Print the sum of all runs."""
    by_engine = ", ".join(f"{engine} {count}" for engine, count in found.kills.items())
    rows = {
        "kills": f"{sum(found.kills.values())} of {wanted} ({by_engine}), {found.runs} runs",
        "of replicas that trained": f"{found.kills_of_members}",
        "committed steps, passes": f"{found.steps}, {found.passes}",
        "lines of replicas on passes": f"{found.lines}",
        "passes without a line": f"{found.passes_without_line}",
        "final loss": f"{found.final_loss!r}",
        "final loss undisturbed": f"{found.undisturbed_final_loss!r}",
        "largest difference of a loss": f"{found.largest_difference:.1e} of it",
        "pause after a kill, median and worst": (
            f"{found.pause_seconds_median:.2f} s, {found.pause_seconds_worst:.2f} s"
        ),
    }
    for name, value in rows.items():
        print(f"{name}: {value}")
    for line in itertools.islice(found.broken, 20):
        print(f"BROKEN: {line}")
    print("failed" if found.broken else "passed")


if __name__ == "__main__":
    main()
