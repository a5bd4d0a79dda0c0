"""Repeated kills of random replicas of a training, compared with a training without losses.

    python benchmarks/soak.py [DIRECTORY] [--kills 2000] [--minutes M] [--commits 20]
        [--engine quorum|roster] [--replicas 3] [--seed 0] [--json]

Three replicas train a small network in 64 bits, at a fixed batch with logical ranks: real
processes of the training library, with a real lighthouse. After 1 to twice `--commits` committed
steps, at random, one of them is killed with SIGKILL and another is started in its place. For three
of four kills the steps are counted once all replicas train; the others may hit a replica that
joins, or its peers meanwhile. The last training replica is never killed.

The parameters contain a count of the examples that training has learnt from. Checks after each
pass: each example was in exactly one committed step of the pass; the loss is that of the training
without losses, to one part in 10^9; all replicas agree. No replica may end by itself, and no time
without a committed step may exceed two minutes.

All files are kept in DIRECTORY, build/soak by default. After a run has ended by --minutes, by
Ctrl-C or by a crash, the same command continues from the job's newest checkpoint; kills add up
over runs. Prints the totals. The exit status is 1 if a check has failed in any run.
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
# Relative tolerance of the loss.
TOLERANCE = 1e-9
HANG_SECONDS = 120.0
LOOK_SECONDS = 0.005
CHECKPOINT_SECONDS = 10.0
# Fraction of the kills that are made when all replicas train.
CALM_SHARE = 0.75

Line = dict[str, Any]


class Broken(Exception):
    """Failed check."""


@dataclass(frozen=True)
class Kept:
    """Files of a soak, which outlive its runs."""

    directory: Path

    @property
    def kills(self) -> Path:
        """File with a line for each kill."""
        return self.directory / "kills.jsonl"

    @property
    def passes(self) -> Path:
        """File with a line of each replica for each pass."""
        return self.directory / "passes.jsonl"

    @property
    def undisturbed(self) -> Path:
        """File with a line for each pass of the training without losses."""
        return self.directory / "undisturbed.jsonl"

    @property
    def runs(self) -> Path:
        """File with a line for each run that has ended."""
        return self.directory / "runs.jsonl"

    @property
    def broken(self) -> Path:
        """File with a line for each check that failed while replicas ran."""
        return self.directory / "broken.jsonl"

    def add(self, path: Path, line: Line) -> None:
        """Append a line to one of the files."""
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self, path: Path) -> list[Line]:
        """Return all complete lines of one of the files."""
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


class Member:
    """Replica, and the last step that it has committed."""

    def __init__(self, replica: ReplicaProcess) -> None:
        self.replica = replica
        self._step_file = step_file(replica.log.parent, replica.name)

    @property
    def step(self) -> int:
        """Number of the last committed step; 0 before the first."""
        try:
            return int(self._step_file.read_text() or 0)
        except FileNotFoundError:
            return 0

    def bury(self) -> None:
        """Kill the replica, and remove its files."""
        self.replica.kill()
        self.replica.close()
        self.replica.messages.clear()
        for path in (self.replica.log, self._step_file):
            path.unlink(missing_ok=True)


def step_file(directory: Path, name: str) -> Path:
    """Return the file in which a replica writes the number of its last committed step."""
    return directory / f"{name}.step"


class Soak:
    """Run with replicas that are killed and replaced."""

    def __init__(self, kept: Kept, arguments: argparse.Namespace) -> None:
        self._kept = kept
        self._arguments = arguments
        self._members: list[Member] = []
        self.kills = len(kept.lines(kept.kills))
        fleets.SCRIPTS = SCRIPTS
        folder = kept.directory / "replicas"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._folder = folder
        self._fleet = Fleet(
            folder,
            self._lighthouse(),
            checkpoint_directory=str(kept.directory / "checkpoints"),
            checkpoint_interval_seconds=CHECKPOINT_SECONDS,
        )

    def _lighthouse(self) -> Lighthouse:
        """Return the engine's server; a server left by an earlier run is found again."""
        folder = self._kept.directory / f"lighthouses-{self._arguments.engine}"
        if self._arguments.engine == Engine.ROSTER:
            return Roster(folder)
        return Lighthouse(folder, Engine.QUORUM)

    def run(self, until: float) -> Iterator[int]:
        """Kill and replace replicas until the kills or the time are reached; yield each total.

        Raises:
            Broken: a replica has ended by itself, or no step is committed in time.
        """
        self._fill()
        while self.kills < self._arguments.kills and time.monotonic() < until:
            generator = random.Random(f"{self._arguments.seed} {self.kills}")
            if generator.random() < CALM_SHARE:
                self._await_all()
            self._await_step(self._newest_step + generator.randint(1, 2 * self._arguments.commits))
            time.sleep(generator.uniform(0.0, 0.05))
            self._kill(generator)
            self._fill()
            yield self.kills

    def finish_pass(self) -> None:
        """Wait until a pass has ended after the last kill."""
        before = len(self._kept.lines(self._kept.passes))
        began = time.monotonic()
        while len(self._kept.lines(self._kept.passes)) <= before:
            self._check_progress(began)
            time.sleep(0.1)

    def stop(self) -> None:
        """End all processes."""
        self._fleet.stop()

    @property
    def _newest_step(self) -> int:
        """Newest step that any replica has committed."""
        return max(member.step for member in self._members)

    def _fill(self) -> None:
        """Start replicas up to the number asked for."""
        while len(self._members) < self._arguments.replicas:
            name = f"r{len(self._fleet.replicas)}"
            replica = self._fleet.start(
                SCRIPT,
                DATA=str(write_digits(self._kept.directory)),
                LEDGER=str(self._kept.passes),
                STEP=str(step_file(self._folder, name)),
                REPLICA=name,
                STEP_SECONDS=str(self._arguments.step_seconds),
            )
            self._members.append(Member(replica))

    @property
    def _training_members(self) -> list[Member]:
        """Replicas that have committed the newest step or the one before it."""
        newest = self._newest_step
        return [member for member in self._members if 0 < newest <= member.step + 1]

    def _await_all(self) -> None:
        """Wait until all replicas train."""
        began = time.monotonic()
        while len(self._training_members) < len(self._members):
            self._check_progress(began)
            time.sleep(LOOK_SECONDS)

    def _await_step(self, step: int) -> None:
        """Wait until a step is committed."""
        newest, since = self._newest_step, time.monotonic()
        while (present := self._newest_step) < step:
            if present != newest:
                newest, since = present, time.monotonic()
            self._check_progress(since)
            time.sleep(LOOK_SECONDS)

    def _check_progress(self, since: float) -> None:
        """Check that all replicas run and a step was committed in time.

        Raises:
            Broken: a replica has ended by itself, or no step was committed.
        """
        for member in self._members:
            status = member.replica.process.poll()
            if status is not None:
                raise Broken(f"{member.replica.name} ended by itself, with status {status}")
        if time.monotonic() - since > HANG_SECONDS:
            raise Broken(f"no step was committed within {HANG_SECONDS:.0f} s")

    def _kill(self, generator: random.Random) -> None:
        """Kill a random replica, but not the only training one, and record the pause."""
        newest, training = self._newest_step, self._training_members
        victims = [member for member in self._members if training != [member]]
        victim = generator.choice(victims)
        killed_at = time.monotonic()
        victim_step = victim.step
        self._members.remove(victim)
        victim.bury()
        self.kills += 1
        survivors_step = self._newest_step
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "engine": self._arguments.engine,
            "step": newest,
            "trained": victim in training,
            "members": len(training),
        }
        self._fill()
        self._await_step(survivors_step + 1)
        line["seconds"] = time.monotonic() - killed_at
        line["lost"] = max(victim_step - survivors_step, 0)
        self._kept.add(self._kept.kills, line)

    def keep_evidence(self, broken: Broken) -> None:
        """Record a failed check, with the logs of the replicas that ran."""
        logs = {
            member.replica.name: member.replica.log.read_text()[-4000:] for member in self._members
        }
        line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": str(broken)}
        self._kept.add(self._kept.broken, {**line, "kills": self.kills, "logs": logs})


@dataclass
class Found:
    """Totals over all runs of a soak."""

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
    """Return the file of the digits, written on the first call."""
    path = directory / "digits.npz"
    if not path.exists():
        digits, unfinished = load_digits(), directory / "unfinished.npz"
        np.savez(unfinished, data=digits.data, target=digits.target)
        unfinished.rename(path)
    return path


def train_undisturbed(kept: Kept, passes: int) -> dict[int, Line]:
    """Return the lines of each pass of the training without losses, by number of the pass."""
    lines_by_pass = {line["pass"]: line for line in kept.lines(kept.undisturbed)}
    if passes not in lines_by_pass:
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
    """Return the errors in the lines of passes.

    Args:
        lines: lines of replicas, several for each pass.
        undisturbed: line of the training without losses, by number of the pass.
        examples: number of examples of a pass.
    """
    errors = []
    for line in lines:
        number = line["pass"]
        if not line["least"] == line["most"] == number or line["seen"] != number * examples:
            errors.append(f"pass {number}: examples were not taken exactly {number} times: {line}")
        if difference(line, undisturbed[number]) > TOLERANCE:
            expected = undisturbed[number]["loss"]
            errors.append(f"pass {number}: the loss is {line['loss']}, undisturbed {expected}")
    by_pass: dict[int, set[float]] = defaultdict(set)
    for line in lines:
        by_pass[line["pass"]].add(line["loss"])
    for number, losses in by_pass.items():
        if max(losses) - min(losses) > TOLERANCE * max(losses):
            errors.append(f"pass {number}: replicas disagree on the loss: {sorted(losses)}")
    return errors


def difference(line: Line, undisturbed: Line) -> float:
    """Return the relative difference of a loss to that of the training without losses."""
    return abs(line["loss"] / undisturbed["loss"] - 1.0)


def found_in(kept: Kept) -> Found:
    """Return the totals over all runs so far."""
    kills, lines = kept.lines(kept.kills), kept.lines(kept.passes)
    last_pass = max((line["pass"] for line in lines), default=0)
    undisturbed = train_undisturbed(kept, last_pass) if last_pass else {}
    passes_with_line = {line["pass"] for line in lines}
    first = next(iter(undisturbed.values()), {"seen": 0, "pass": 1})
    pauses = [kill["seconds"] for kill in kills if kill["trained"]] or [0.0]
    return Found(
        kills=dict(Counter(kill["engine"] for kill in kills)),
        kills_of_members=sum(kill["trained"] for kill in kills),
        runs=len(kept.lines(kept.runs)),
        passes=last_pass,
        steps=max((kill["step"] for kill in kills), default=0),
        lines=len(lines),
        passes_without_line=last_pass - len(passes_with_line),
        largest_difference=max(
            (difference(line, undisturbed[line["pass"]]) for line in lines), default=0.0
        ),
        final_loss=next(
            (line["loss"] for line in reversed(lines) if line["pass"] == last_pass), 0.0
        ),
        undisturbed_final_loss=undisturbed[last_pass]["loss"] if last_pass else 0.0,
        pause_seconds_median=statistics.median(pauses),
        pause_seconds_worst=max(pauses),
        broken=[
            *(line["what"] for line in kept.lines(kept.broken)),
            *broken_passes(lines, undisturbed, first["seen"] // first["pass"]),
        ],
    )


@contextmanager
def running(kept: Kept, arguments: argparse.Namespace) -> Iterator[Soak]:
    """Yield a run whose processes end with it, and record it."""
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
    """Kill until the kills or the time are reached; record a check that fails."""
    until = time.monotonic() + 60 * arguments.minutes
    columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        running(kept, arguments) as soak,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("", total=arguments.kills, completed=soak.kills)
        try:
            for kills in soak.run(until):
                progress.update(bar, completed=kills)
            soak.finish_pass()
        except Broken as broken:
            soak.keep_evidence(broken)


def parsed() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", type=Path, default=Path("build/soak"))
    parser.add_argument("--kills", type=int, default=2000, help="total kills of all runs")
    parser.add_argument("--minutes", type=float, default=1e9, help="most minutes of this run")
    parser.add_argument(
        "--commits", type=int, default=20, help="average committed steps between two kills"
    )
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], default="quorum")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument(
        "--step-seconds", type=float, default=0.01, help="seconds added to each share of a step"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if min(arguments.kills, arguments.commits) < 1 or arguments.replicas < 2:
        parser.error("--kills and --commits must be at least 1, --replicas at least 2")
    return arguments


def main() -> None:
    """Continue a soak, and print the totals of its runs."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    kept = Kept(arguments.directory.resolve())
    kept.directory.mkdir(parents=True, exist_ok=True)
    write_digits(kept.directory)
    if len(kept.lines(kept.kills)) < arguments.kills and not kept.broken.exists():
        one_run(kept, arguments)
    totals = found_in(kept)
    if arguments.json:
        print(json.dumps(asdict(totals), indent=2))
    else:
        print_found(totals, arguments.kills)
    raise SystemExit(1 if totals.broken else 0)


def print_found(totals: Found, wanted: int) -> None:
    """Print the totals of all runs."""
    by_engine = ", ".join(f"{engine} {count}" for engine, count in totals.kills.items())
    rows = {
        "kills": f"{sum(totals.kills.values())} of {wanted} ({by_engine}), {totals.runs} runs",
        "of replicas that trained": f"{totals.kills_of_members}",
        "committed steps, passes": f"{totals.steps}, {totals.passes}",
        "lines of replicas on passes": f"{totals.lines}",
        "passes without a line": f"{totals.passes_without_line}",
        "final loss": f"{totals.final_loss!r}",
        "final loss undisturbed": f"{totals.undisturbed_final_loss!r}",
        "largest difference of a loss": f"{totals.largest_difference:.1e} of it",
        "pause after a kill, median and worst": (
            f"{totals.pause_seconds_median:.2f} s, {totals.pause_seconds_worst:.2f} s"
        ),
    }
    for name, value in rows.items():
        print(f"{name}: {value}")
    for line in itertools.islice(totals.broken, 20):
        print(f"BROKEN: {line}")
    print("failed" if totals.broken else "passed")


if __name__ == "__main__":
    main()
