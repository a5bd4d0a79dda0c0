"""Whole controller on a virtual clock, over a cloud that is a file.

The store is in memory, which behaves as one in a database (tests/store/test_alike.py) and is ten
times as fast. A test about files uses a database.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.clock import VirtualClock
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.offers.networks import waits_for_network
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import InlineWorkers, Workers
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import CloudState, Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import Snapshot
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.memory.store import memory_store
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from tests.controller.cloud import FileCloud

START_SECONDS = 1_000_000.0


@dataclass
class RecordedLighthouses:
    """Lighthouses that only record which jobs have one."""

    running: set[str] = field(default_factory=set)

    def ensure(self, job: str) -> str:
        self.running.add(job)
        return f"http://lighthouse/{job}"

    def release(self, job: str) -> None:
        self.running.discard(job)


@dataclass
class PlannedTargets:
    """Policy whose targets a test sets."""

    targets: dict[str, Allocation | None] = field(default_factory=dict)
    release_first: bool = False
    # Jobs that the policy stops for their budgets.
    stopped: set[str] = field(default_factory=set)
    # The targets hold at once, also while instances boot.
    weighs_boots: bool = True

    def plan(self, snapshot: Snapshot) -> Plan:
        decisions = []
        for job in snapshot.jobs:
            target = self.targets.get(job.id, job.held)
            action = Action.HOLD if target == job.held else Action.GROW
            action = Action.STOP if job.id in self.stopped else action
            decisions.append(
                Decision(
                    job.id,
                    action,
                    job.held,
                    target,
                    f"{action} {job.id}",
                    release_first=self.release_first,
                    ground=ReasonCode.STOPS if job.id in self.stopped else ReasonCode.NONE,
                )
            )
        return Plan(tuple(decisions))


class World:
    """One deployment. `restart` stands for a crash and a new start of the controller.

    The store is a database if `template` names one to copy, or if one exists already.
    """

    store: Store

    def __init__(
        self,
        directory: Path,
        settings: ControllerSettings = ControllerSettings(orphan_seconds=10.0, replan_seconds=0.0),
        devices: int = 4,
        template: Path | None = None,
    ) -> None:
        database = directory / "castor.db"
        if template is not None and not database.exists():
            shutil.copy(template, database)
        self.clock = VirtualClock(START_SECONDS)
        self.cloud = FileCloud(directory / "cloud.json", self.clock, devices)
        self.lighthouses = RecordedLighthouses()
        self.policy = PlannedTargets()
        self.settings = settings
        self.workers: Workers | None = None
        self.termination_workers: Workers | None = None
        self.is_ticking = False
        self.consoles: list[tuple[str, str]] = []
        self._url = f"sqlite:///{database}" if database.exists() else None
        if self._url is None:
            self.store = memory_store()
        self.restart()

    def restart(self) -> None:
        if self._url is not None:
            self.store = open_store(self._url)
        self.controller = assemble(self.parts(), self.settings)

    def parts(self) -> ControllerParts:
        """Return the parts of the controller."""
        return ControllerParts(
            store=self.store,
            providers={"file": self.cloud},
            policy=self.policy,
            lighthouses=self.lighthouses,
            workers=self.workers or InlineWorkers(),
            termination_workers=self.termination_workers,
            clock=self.clock,
            user_data=lambda held: "user data",
            on_console=lambda held, text: self.consoles.append((held.id, text)),
        )

    def submit(self, name: str = "job", maximum: int = 4, **spec: object) -> str:
        bounds = InstanceBounds(maximum=maximum)
        job = JobSpec(name, ("python", "train.py"), instances=bounds, **spec)  # type: ignore[arg-type]
        return self.store.jobs.add(job, self.clock.now()).id

    def set_target(self, job: str, instances: int, offer: str = "small") -> None:
        self.policy.targets[job] = Allocation(offer, instances, 1) if instances else None

    def tick(self, times: int = 1, seconds: float = 2.0, agents: bool = True) -> None:
        """Advance the time and run the controller and the agents of running instances."""
        for _ in range(times):
            self.clock.advance(seconds)
            if agents:
                self.report_from_agents()
            self.is_ticking = True
            self.controller.tick(self.clock.now())
            self.is_ticking = False

    def report_from_agents(self) -> None:
        """Report for every agent of a running instance: it trains, is ready, or has drained."""
        states = {instance.id: instance.state for instance in self.cloud.instances()}
        for held in self.store.instances.alive():
            if held.cloud_id is None or states.get(held.cloud_id) is not CloudState.RUNNING:
                continue
            phase = InstancePhase.TRAINING
            if held.desired is Desired.ABSENT:
                phase = InstancePhase.DRAINED
            elif held.stands_by or waits_for_network(held, self.store.instances.of_job(held.job)):
                phase = InstancePhase.READY
            self.store.instances.record_node(held.id, phase, self.clock.now())

    def do_part(self, held: HeldInstance) -> None:
        """Report that the instance's script has done its part; the job continues."""
        facts: Mapping[str, str] = {Fact.DONE: str(self.store.jobs.get(held.job).attempt)}
        self.store.instances.record_node(held.id, held.phase, self.clock.now(), facts)

    def complete(self, held: HeldInstance) -> None:
        """Report that the instance's script has ended well."""
        now_seconds = self.clock.now()
        facts: Mapping[str, str] = {Fact.COMPLETE: str(now_seconds)}
        self.store.instances.record_node(held.id, held.phase, now_seconds, facts)

    def training(self, job: str) -> list[HeldInstance]:
        return [
            held
            for held in self.store.instances.of_job(job)
            if held.phase is InstancePhase.TRAINING
        ]

    def assert_nothing_leaked(self) -> None:
        """Assert that the store has each running cloud instance once, and that the bills agree."""
        alive = {held.cloud_id: held for held in self.store.instances.alive()}
        for instance in self.cloud.running():
            assert instance.id in alive, f"{instance.id} runs but is not in the store"
        tokens = [instance.token for instance in self.cloud.instances()]
        assert len(tokens) == len(set(tokens))
        ledger = Ledger(self.store.ledger.entries())
        assert abs(ledger.total(self.clock.now()) - self.cloud.billed_usd()) < 1e-6
