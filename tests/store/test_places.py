"""Slots and generations under any order of orders and ends."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from hypothesis.strategies import integers, sampled_from

from autoscaler.domain.spending import EntryKind
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import open_store
from tests.conformance.store_examples import NOW, add_job, end, order, seen

JOBS = ("a", "b")


class Places(RuleBasedStateMachine):
    """Two jobs that order, launch, are refused and end in any order."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        copy = shutil.copy(self.template, self.directory)
        self.store = open_store(f"sqlite:///{copy}")
        for job in JOBS:
            add_job(self.store, job)
        self.generations: dict[tuple[str, int], int] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    @rule(job=sampled_from(JOBS))
    def order(self, job: str) -> None:
        free = {held.slot for held in self.store.instances.of_job(job)}
        held = order(self.store, job)
        assert held.slot == min(set(range(len(free) + 1)) - free)
        assert held.generation == self.generations.get((job, held.slot), 0) + 1
        self.generations[job, held.slot] = held.generation

    @rule(which=integers(0, 9))
    def launch(self, which: int) -> None:
        for held in self.store.instances.alive()[which : which + 1]:
            self.store.instances.observe_cloud(held.id, seen(held.id), NOW + 1)

    @rule(which=integers(0, 9))
    def refuse(self, which: int) -> None:
        waiting = [held for held in self.store.instances.alive() if held.cloud_id is None]
        for held in waiting[which : which + 1]:
            self.store.instances.launch_failed(held.id, "none left", NOW)

    @rule(which=integers(0, 9))
    def end(self, which: int) -> None:
        for held in self.store.instances.alive()[which : which + 1]:
            end(self.store, held.id)

    @rule(which=integers(0, 9))
    def terminate(self, which: int) -> None:
        for held in self.store.instances.alive()[which : which + 1]:
            self.store.instances.request_termination(held.id, NOW)

    @invariant()
    def a_slot_holds_one(self) -> None:
        places = [(held.job, held.slot) for held in self.store.instances.alive()]
        assert len(places) == len(set(places))

    @invariant()
    def the_ledger_follows_the_cloud(self) -> None:
        entries = self.store.ledger.entries()
        opened = sorted(line.instance for line in entries if line.kind is EntryKind.OPEN)
        closed = sorted(line.instance for line in entries if line.kind is EntryKind.CLOSE)
        everything = [
            held for job in JOBS for held in self.store.instances.of_job(job, include_ended=True)
        ]
        launched = [held for held in everything if held.launched_seconds is not None]
        assert opened == sorted(held.id for held in launched)
        assert closed == sorted(held.id for held in launched if held.ended_seconds is not None)
        Ledger(entries)


def test_places(template: Path) -> None:
    Places.template = template
    run_state_machine_as_test(
        Places,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
