"""Jobs on a cloud of two devices on a virtual clock: a launch takes a boot.

The speed of a job at each size is known, its measurements are noisy, and the policy sees models
fitted to them, as under the controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Action, Decision
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts, ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.prior import prior_for
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.economics.cases import NOW, devices, job, offer, snapshot

TICK_SECONDS = 2.0
START_SECONDS = 8.0
DEVICES = 2
OFFERS = (offer("local-small", "0.045"), offer("local-large", "0.085", devices=2))
COSTS = SwitchingCosts(0.05, 3.0, {sold.id: START_SECONDS for sold in OFFERS})
BATCH = BatchBounds(initial=32, maximum=32, device_maximum=32, adaptive=False)
# Step on one device, at 100 examples a second, and the part of it that any batch takes.
STEP_SECONDS, CONSTANT_SECONDS = 0.32, 0.02


@dataclass
class Job:
    """Job that is `scaling` times as fast on two devices as on one."""

    name: str
    objective: Objective
    scaling: float
    examples: float
    noise: float = 0.03
    held: Allocation | None = None
    trained: Allocation | None = None
    has_run: bool = False
    arrived_seconds: float = NOW
    trains_from_seconds: float = 0.0
    changes: list[Decision] = field(default_factory=list)
    seen: list[StepObservation] = field(default_factory=list)

    def train(self, generator: np.random.Generator) -> None:
        """Train for one tick."""
        if self.trained is None:
            return
        self.has_run = True
        count = self.trained.devices
        step = STEP_SECONDS / (self.scaling if count == 2 else 1.0)
        compute = CONSTANT_SECONDS + (STEP_SECONDS - CONSTANT_SECONDS) / count
        factor = float(np.exp(self.noise * generator.standard_normal()))
        self.examples -= BATCH.initial * TICK_SECONDS / step
        self.seen.append(
            StepObservation(
                device_kind="core",
                instances=self.trained.instances,
                devices=count,
                device_batch=BATCH.initial // count,
                accumulation=0,
                step_seconds=factor * step,
                sync_seconds=factor * (step - compute),
                steps=int(TICK_SECONDS / step),
            )
        )

    def snapshot(self, now_seconds: float) -> JobSnapshot:
        return job(
            self.name,
            self.held,
            self._model(),
            objective=self.objective,
            instances=InstanceBounds(1, 4, ("local-small",)),
            batch=BATCH,
            submitted_seconds=self.arrived_seconds,
            remaining_examples=self.examples,
            spent_usd=0.01 if self.has_run else 0.0,
            trained=self.trained,
            switching=replace(COSTS, dwell_seconds=self._dwell_seconds(now_seconds)),
        )

    def _dwell_seconds(self, now_seconds: float) -> float | None:
        """Return the job's age over its number of reversed changes; None without one."""
        sizes = [change.action for change in self.changes if change.action is not Action.START]
        taken_back = sum(before is not after for before, after in pairwise(sizes))
        return (now_seconds - self.arrived_seconds) / taken_back if taken_back else None

    def _model(self) -> ThroughputModel:
        return fit(self.seen, prior_for("core", 4_000_000, 2e9))


class World:
    """Jobs, and the effects of the policy's decisions on them."""

    def __init__(self, seed: int = 0, replan_seconds: float = TICK_SECONDS) -> None:
        self.jobs: dict[str, Job] = {}
        self.now_seconds = NOW
        self._replan_seconds = replan_seconds
        self._policy = MarginalPolicy()
        self._generator = np.random.default_rng(seed)

    def arrives(self, newcomer: Job) -> None:
        newcomer.arrived_seconds = self.now_seconds
        self.jobs[newcomer.name] = newcomer

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    def tick(self) -> None:
        """Train, plan, and carry out the releases and launches that have room."""
        for running in self.jobs.values():
            if self.now_seconds >= running.trains_from_seconds:
                running.trained = running.held
            running.train(self._generator)
        self.jobs = {name: left for name, left in self.jobs.items() if left.examples > 0}
        self.now_seconds += TICK_SECONDS
        decisions = self._policy.plan(self._moment()).decisions
        changes = [decision for decision in decisions if decision.target != decision.current]
        for decision in changes:
            self.jobs[decision.job].changes.append(decision)
            self._release(self.jobs[decision.job], decision.target)
        for decision in changes:
            self._order(self.jobs[decision.job], decision.target)

    def _moment(self) -> Snapshot:
        return snapshot(
            *(running.snapshot(self.now_seconds) for running in self.jobs.values()),
            offers=OFFERS,
            limits=[devices(DEVICES)],
            now_seconds=self.now_seconds,
            replan_seconds=self._replan_seconds,
        )

    def _release(self, holder: Job, target: Allocation | None) -> None:
        less = 0 if target is None else target.instances
        if holder.held is not None and less < holder.held.instances:
            holder.held = holder.trained = target

    def _order(self, holder: Job, target: Allocation | None) -> None:
        if target is None or target == holder.held:
            return
        others = [other.held for other in self.jobs.values() if other is not holder]
        if target.devices + sum(held.devices for held in others if held) <= DEVICES:
            holder.held = target
            holder.trains_from_seconds = self.now_seconds + START_SECONDS
