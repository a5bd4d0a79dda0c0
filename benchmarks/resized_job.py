"""A small training job whose size changes by chance, with what is known before each change.

Real replicas of the training library train one of the tasks of `scripts/converging.py`. What they
report goes the way that it goes in the controller: step times into the store, models fitted to
them and kept while they predict well, and the fit back to the replicas, which choose their batch
by it.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoscaler.controller.models import Models
from autoscaler.controller.step_times import KnownStepTimes
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.job import BatchSpec, JobSpec
from autoscaler.domain.report import StepObservation, TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.domain.training import TrainingDirective
from autoscaler.store.memory.store import memory_store
from autoscaler.wire.codec import decode
from providers.local.settings import default_catalogue
from tests.training.fleet import Fleet, ReplicaProcess

SCRIPT = "converging.py"
SCRIPTS = Path(__file__).parent / "scripts"
TASKS = ("digits", "chargpt", "resnet")
BATCH = BatchSpec(initial=32, maximum=256, device_maximum=64, adaptive=True)
MOST_REPLICAS = 4
# Seconds that the script sleeps for a micro-batch, and for each of its examples; drawn evenly by
# logarithm.
FIXED_SECONDS = 0.04, 0.12
EXAMPLE_SECONDS = 0.002, 0.006
OFFERS = default_catalogue()
KIND = OFFERS[0].device_kind
# From the first report of the new size to what counts as measured.
SETTLING_SECONDS = 6.0
# Seconds of steps that are measured at each size, and seconds in which that has to come about.
MEASURED_SECONDS = 4.0
LIMIT_SECONDS = 90.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Stretch:
    """Step times of one round, and the total batch that they were measured at."""

    observation: StepObservation
    batch: int


@dataclass(frozen=True, slots=True)
class StepLine:
    """One committed step by the clock of the script: when it ended."""

    at: float
    examples: int


@dataclass(frozen=True, slots=True)
class Resize:
    """One change of size: what was known before it, and what was measured after it.

    `model`, `noise` and `bounds` are those known when the change began, from replicas `before` to
    replicas `after`. `stretches` and `steps` were measured after it, and so was the noise scale:
    `reported_noise` in the last report, `noise_examples` from all examples by the `states` that
    were kept, once the job has ended. `how` is join, leave or kill, or both of these. `load` is
    that of the machine, over a minute.
    """

    task: str
    seed: int
    number: int
    how: str
    before: int
    after: int
    model: ThroughputModel
    noise: NoiseScale
    bounds: BatchBounds
    stretches: tuple[Stretch, ...]
    steps: tuple[StepLine, ...]
    reported_noise: NoiseScale
    states: str
    load: float
    noise_examples: float = math.nan

    @property
    def is_seen(self) -> bool:
        """Whether the model was fitted to step times of the new size, too."""
        return (self.after, self.after) in self.model.measured


class Watch:
    """What a replica itself writes down from now on until the `end`."""

    def __init__(self, replica: ReplicaProcess) -> None:
        self._replica = replica
        self._began = time.time()
        self._wanted = Path(f"{replica.trace}.states")
        self._wanted.mkdir()
        self.states = self._wanted

    @property
    def has_states(self) -> bool:
        """Whether a state was kept."""
        return any(self.states.glob("*.pt"))

    @property
    def steps(self) -> tuple[StepLine, ...]:
        """The committed steps since the beginning."""
        lines = self._replica.steps()
        steps = [StepLine(line["at"], line["examples"]) for line in lines if line["committed"]]
        return tuple(step for step in steps if step.at > self._began)

    def end(self) -> None:
        """Keep no more states."""
        self.states = self._wanted.rename(f"{self._wanted}.{self._began}")


class Knowledge:
    """What a controller knows of the job: its last report, and the model of its step times."""

    def __init__(self) -> None:
        self._store = memory_store()
        self._record = self._store.jobs.add(JobSpec(name="job", command=("train",)), 0.0)
        self._step_times = KnownStepTimes(self._store)
        self._models = Models(self._store)
        self.report: TrainingReport | None = None
        self.model: ThroughputModel | None = None

    def hear(self, report: TrainingReport) -> None:
        """Take in a report; fit anew where the model does not predict what was measured."""
        now_seconds = time.monotonic()
        self.report = report
        record = replace(self._record, report=report)
        measurements = self._store.measurements
        measurements.add_observations(record.id, report.observations, now_seconds)
        observations = self._step_times.of(record, None).all
        if observations:
            self.model = self._models.of(record, observations, OFFERS, now_seconds)[KIND]

    @property
    def directive(self) -> TrainingDirective:
        """What replicas are told."""
        if self.model is None or not self.model.measured:
            return TrainingDirective()
        return TrainingDirective(throughput=self.model.point)

    @property
    def is_enough(self) -> bool:
        """Whether goodput can be predicted: a size and the noise scale were measured."""
        has_noise = self.report is not None and self.report.noise is not None
        return has_noise and self.directive.throughput is not None


class ResizedJob:
    """One job of 1 to MOST_REPLICAS replicas. It is given up once `is_over` is set."""

    def __init__(
        self, directory: Path, task: str, seed: int, data: Path, is_over: threading.Event
    ) -> None:
        self._is_over = is_over
        self._chance = random.Random(f"prediction {task} {seed}")
        self._task, self._seed = task, seed
        self._environment: dict[str, Any] = {
            "TASK": task,
            "SEED": str(seed),
            "DATA": str(data),
            "RESULT": str(directory / "result.json"),
            "STEP_SECONDS": str(self._drawn(FIXED_SECONDS)),
            "EXAMPLE_SECONDS": str(self._drawn(EXAMPLE_SECONDS)),
            "EPOCHS": str(10**6),
            "WRITES_STEPS": "yes",
        }
        self._fleet = Fleet(directory, batch=BATCH)
        self._known = Knowledge()
        self._heard: dict[str, int] = {}
        self._alive: list[ReplicaProcess] = []
        self._reports: list[TrainingReport] = []

    def run(self, resizes: int) -> list[Resize]:
        """Change the size so many times, and end all processes.

        Raises:
            RuntimeError: a replica fails, a size is not reached or measured in time, or the job is
                given up.
        """
        try:
            self._join()
            self._until(lambda: self._known.is_enough, "a model and a noise scale")
            self._measure(1)
            found = [self._resize(number) for number in range(resizes)]
        finally:
            self._fleet.stop()
        return self._with_noise(found)

    def _resize(self, number: int) -> Resize:
        before, known = len(self._alive), self._known
        others = [size for size in range(1, MOST_REPLICAS + 1) if size != before]
        after = self._chance.choice(others)
        report, model = known.report, known.model
        assert report is not None and report.noise is not None and model is not None
        ways = {
            self._join() if after > before else self._leave() for _ in range(abs(after - before))
        }
        watch = self._measure(after)
        reported_noise = self._reports[-1].noise
        assert reported_noise is not None
        return Resize(
            task=self._task,
            seed=self._seed,
            number=number,
            how=" and ".join(sorted(ways)),
            before=before,
            after=after,
            model=model,
            noise=report.noise,
            bounds=report.bounds,
            stretches=stretches_of(self._reports, after),
            steps=watch.steps,
            reported_noise=reported_noise,
            states=str(watch.states),
            load=os.getloadavg()[0],
        )

    def _measure(self, size: int) -> Watch:
        """Measure a size, once it is reached and has settled; `_reports` are then those of it."""
        self._reports.clear()
        self._until(lambda: any(each.replicas == size for each in self._reports), "the size")
        settled_seconds = time.monotonic() + SETTLING_SECONDS
        self._until(lambda: time.monotonic() > settled_seconds, "settling")
        self._reports.clear()
        watch = Watch(self._alive[0])

        def is_measured() -> bool:
            observations = [each.observation for each in stretches_of(self._reports, size)]
            seconds = sum(each.steps * each.step_seconds for each in observations)
            return seconds >= MEASURED_SECONDS and watch.has_states

        self._until(is_measured, f"step times of {size} replicas")
        watch.end()
        return watch

    def _with_noise(self, resizes: list[Resize]) -> list[Resize]:
        """Return the resizes with the noise scales of all examples."""
        command = [sys.executable, str(SCRIPTS / "true_noise.py")]
        done = subprocess.run(
            [*command, *(resize.states for resize in resizes)],
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
            check=True,
        )
        examples = json.loads(done.stdout)
        return [
            replace(resize, noise_examples=own)
            for resize, own in zip(resizes, examples, strict=True)
        ]

    def _join(self) -> str:
        replica = self._fleet.start(SCRIPT, **self._environment)
        replica.direct(self._known.directive)
        self._alive.append(replica)
        return "join"

    def _leave(self) -> str:
        leaver = self._alive.pop(self._chance.randrange(len(self._alive)))
        if self._chance.random() < 0.5:
            leaver.kill()
            return "kill"
        leaver.direct(replace(self._known.directive, drain=True))
        return "leave"

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not condition():
            if self._is_over.is_set():
                raise RuntimeError("the job is given up")
            if time.monotonic() - began > LIMIT_SECONDS:
                place = f"{self._task}, seed {self._seed}"
                raise RuntimeError(f"{place}: {what} did not come in {LIMIT_SECONDS:g} s")
            for replica in self._alive:
                if replica.process.poll() is not None:
                    raise RuntimeError(f"a replica failed:\n{replica.log.read_text()[-2000:]}")
            self._hear()
            time.sleep(LOOK_SECONDS)

    def _hear(self) -> None:
        model = self._known.model
        for replica in self._fleet.replicas:
            reports = replica.reports
            for body in reports[self._heard.get(replica.name, 0) :]:
                report = decode(TrainingReport, json.dumps(body))
                self._known.hear(report)
                self._reports.append(report)
            self._heard[replica.name] = len(reports)
        if self._known.model is not model:
            for replica in self._alive:
                replica.direct(self._known.directive)

    def _drawn(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return float(low * (high / low) ** self._chance.random())


def stretches_of(reports: list[TrainingReport], size: int) -> tuple[Stretch, ...]:
    """Return the step times at a size, with the total batches that the reports say.

    Those of a batch that no report has are left out.
    """
    totals = {(r.batch.device, r.batch.accumulation): r.batch.total for r in reports}
    observations = [each for report in reports for each in report.observations]
    return tuple(
        Stretch(each, totals[each.device_batch, each.accumulation])
        for each in observations
        if each.instances == size and (each.device_batch, each.accumulation) in totals
    )
