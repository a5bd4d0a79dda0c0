"""Small training job whose size changes at random, and what is known before each change.

Real replicas of the training library train one of the tasks of `scripts/converging.py`. Their
reports are handled as in the controller: step times go into the store, models are fitted to them
and kept while they predict well, and the fit goes back to the replicas, which choose their batch
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

from autoscaler.controller.jobs.models import Models
from autoscaler.controller.jobs.step_times import KnownStepTimes
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
# Ranges of the seconds that the script sleeps for a micro-batch and for each of its examples;
# drawn evenly in the logarithm.
FIXED_SECONDS = 0.04, 0.12
EXAMPLE_SECONDS = 0.002, 0.006
OFFERS = default_catalogue()
KIND = OFFERS[0].device_kind
# Seconds from the first report of the new size to the start of the measurement.
SETTLING_SECONDS = 6.0
# Seconds of steps measured at each size, and the timeout of each wait in seconds.
MEASURED_SECONDS = 4.0
LIMIT_SECONDS = 90.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Stretch:
    """Step times of one round, and their total batch in examples."""

    observation: StepObservation
    batch: int


@dataclass(frozen=True, slots=True)
class StepLine:
    """Committed step: its end by the clock of the script, and its examples."""

    at: float
    examples: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Change of size, with the state of knowledge before it and the measurements after it.

    Attributes:
        task: task of the job.
        seed: seed of the job.
        number: number of the change in its job, from 0.
        how: join, leave or kill, or several of these.
        before: number of replicas before the change.
        after: number of replicas after the change.
        model: model of step times when the change began.
        noise: noise scale when the change began.
        bounds: bounds of the batch when the change began.
        stretches: step times measured after the change.
        steps: committed steps measured after the change.
        reported_noise: noise scale of the last report.
        states: folder of the stored states of the model.
        load: load of the machine over a minute.
        noise_examples: noise scale of all examples at these states; NaN until the job has ended.
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
        """Whether the model was also fitted to step times of the new size."""
        return (self.after, self.after) in self.model.measured


class Watch:
    """Steps and states that a replica writes from now on until `end`."""

    def __init__(self, replica: ReplicaProcess) -> None:
        self._replica = replica
        self._began = time.time()
        self._requested_states = Path(f"{replica.trace}.states")
        self._requested_states.mkdir()
        self.states = self._requested_states

    @property
    def has_states(self) -> bool:
        """Whether a state was written."""
        return any(self.states.glob("*.pt"))

    @property
    def steps(self) -> tuple[StepLine, ...]:
        """Committed steps since the beginning."""
        lines = self._replica.steps()
        steps = [StepLine(line["at"], line["examples"]) for line in lines if line["committed"]]
        return tuple(step for step in steps if step.at > self._began)

    def end(self) -> None:
        """Request no more states."""
        self.states = self._requested_states.rename(f"{self._requested_states}.{self._began}")


class Knowledge:
    """Controller's knowledge of the job: its last report, and the model of its step times."""

    def __init__(self) -> None:
        self._store = memory_store()
        self._record = self._store.jobs.add(JobSpec(name="job", command=("train",)), 0.0)
        self._step_times = KnownStepTimes(self._store)
        self._models = Models(self._store)
        self.report: TrainingReport | None = None
        self.model: ThroughputModel | None = None

    def hear(self, report: TrainingReport) -> None:
        """Store a report; fit a new model if the present one does not predict it."""
        now_seconds = time.monotonic()
        self.report = report
        record = replace(self._record, report=report)
        measurements = self._store.measurements
        measurements.add_observations(record.id, report.observations, now_seconds)
        step_times = self._step_times.of(record, None)
        if step_times.all:
            self.model = self._models.of(record, step_times, OFFERS, now_seconds)[KIND]

    @property
    def directive(self) -> TrainingDirective:
        """Directive for the replicas."""
        if self.model is None or not self.model.measured:
            return TrainingDirective()
        return TrainingDirective(throughput=self.model.point)

    @property
    def is_enough(self) -> bool:
        """Whether goodput can be predicted: a size and the noise scale have been measured."""
        has_noise = self.report is not None and self.report.noise is not None
        return has_noise and self.directive.throughput is not None


class ResizedJob:
    """Job of 1 to MOST_REPLICAS replicas, abandoned once `is_over` is set."""

    def __init__(
        self, directory: Path, task: str, seed: int, data: Path, is_over: threading.Event
    ) -> None:
        self._is_over = is_over
        self._generator = random.Random(f"prediction {task} {seed}")
        self._task, self._seed = task, seed
        self._environment: dict[str, Any] = {
            "TASK": task,
            "SEED": str(seed),
            "DATA": str(data),
            "RESULT": str(directory / "result.json"),
            "STEP_SECONDS": str(self._random_seconds(FIXED_SECONDS)),
            "EXAMPLE_SECONDS": str(self._random_seconds(EXAMPLE_SECONDS)),
            "EPOCHS": str(10**6),
            "WRITES_STEPS": "yes",
        }
        self._fleet = Fleet(directory, batch=BATCH)
        self._knowledge = Knowledge()
        self._report_counts: dict[str, int] = {}
        self._alive: list[ReplicaProcess] = []
        self._reports: list[TrainingReport] = []

    def run(self, resizes: int) -> list[Resize]:
        """Return so many changes of size; all processes have ended then.

        Raises:
            RuntimeError: a replica fails, a size is not reached or measured in time, or the job is
                abandoned.
        """
        try:
            self._join()
            self._wait_until(lambda: self._knowledge.is_enough, "a model and a noise scale")
            self._measure(1)
            resized = [self._resize(number) for number in range(resizes)]
        finally:
            self._fleet.stop()
        return self._with_noise(resized)

    def _resize(self, number: int) -> Resize:
        """Change the size to a random other one, and return the measured change."""
        before, knowledge = len(self._alive), self._knowledge
        other_sizes = [size for size in range(1, MOST_REPLICAS + 1) if size != before]
        after = self._generator.choice(other_sizes)
        report, model = knowledge.report, knowledge.model
        assert report is not None and report.noise is not None and model is not None
        methods = {
            self._join() if after > before else self._leave() for _ in range(abs(after - before))
        }
        watch = self._measure(after)
        reported_noise = self._reports[-1].noise
        assert reported_noise is not None
        return Resize(
            task=self._task,
            seed=self._seed,
            number=number,
            how=" and ".join(sorted(methods)),
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
        """Measure a size once it is reached and has settled; `_reports` then has its reports."""
        self._reports.clear()
        self._wait_until(
            lambda: any(report.replicas == size for report in self._reports), "the size"
        )
        settled_seconds = time.monotonic() + SETTLING_SECONDS
        self._wait_until(lambda: time.monotonic() > settled_seconds, "settling")
        self._reports.clear()
        watch = Watch(self._alive[0])

        def is_measured() -> bool:
            observations = [stretch.observation for stretch in stretches_of(self._reports, size)]
            seconds = sum(
                observation.steps * observation.step_seconds for observation in observations
            )
            return seconds >= MEASURED_SECONDS and watch.has_states

        self._wait_until(is_measured, f"step times of {size} replicas")
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
            replace(resize, noise_examples=noise_examples)
            for resize, noise_examples in zip(resizes, examples, strict=True)
        ]

    def _join(self) -> str:
        """Start a replica; return the name of the method."""
        replica = self._fleet.start(SCRIPT, **self._environment)
        replica.direct(self._knowledge.directive)
        self._alive.append(replica)
        return "join"

    def _leave(self) -> str:
        """Kill a random replica or let it leave as planned; return the name of the method."""
        leaver = self._alive.pop(self._generator.randrange(len(self._alive)))
        if self._generator.random() < 0.5:
            leaver.kill()
            return "kill"
        leaver.direct(replace(self._knowledge.directive, drain=True))
        return "leave"

    def _wait_until(self, condition: Callable[[], bool], awaited: str) -> None:
        """Wait for a condition while reports are read.

        Raises:
            RuntimeError: the job is abandoned, the time is over, or a replica fails.
        """
        began = time.monotonic()
        while not condition():
            if self._is_over.is_set():
                raise RuntimeError("the job is abandoned")
            if time.monotonic() - began > LIMIT_SECONDS:
                job = f"{self._task}, seed {self._seed}"
                raise RuntimeError(f"{job}: waited for {awaited} longer than {LIMIT_SECONDS:g} s")
            for replica in self._alive:
                if replica.process.poll() is not None:
                    raise RuntimeError(f"a replica failed:\n{replica.log.read_text()[-2000:]}")
            self._read_reports()
            time.sleep(LOOK_SECONDS)

    def _read_reports(self) -> None:
        """Read new reports, and send the replicas a new model."""
        model = self._knowledge.model
        for replica in self._fleet.replicas:
            reports = replica.reports
            for body in reports[self._report_counts.get(replica.name, 0) :]:
                report = decode(TrainingReport, json.dumps(body))
                self._knowledge.hear(report)
                self._reports.append(report)
            self._report_counts[replica.name] = len(reports)
        if self._knowledge.model is not model:
            for replica in self._alive:
                replica.direct(self._knowledge.directive)

    def _random_seconds(self, bounds: tuple[float, float]) -> float:
        """Return a random number within the bounds, evenly by logarithm."""
        low, high = bounds
        return float(low * (high / low) ** self._generator.random())


def stretches_of(reports: list[TrainingReport], size: int) -> tuple[Stretch, ...]:
    """Return the step times at a size, with the total batches of the reports.

    Step times of a batch that no report names are left out.
    """
    totals = {
        (report.batch.device, report.batch.accumulation): report.batch.total for report in reports
    }
    observations = [observation for report in reports for observation in report.observations]
    return tuple(
        Stretch(observation, totals[observation.device_batch, observation.accumulation])
        for observation in observations
        if observation.instances == size
        and (observation.device_batch, observation.accumulation) in totals
    )
