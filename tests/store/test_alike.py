"""A store in a database and one in memory, which say the same whatever is done to both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from hypothesis.strategies import booleans, integers, none, sampled_from

from autoscaler.controller.offers.refusals import refusal_by
from autoscaler.domain.errors import CastorError, InsufficientCapacity
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import Failure, ReportOrigin
from autoscaler.domain.spending import EntryKind
from autoscaler.domain.transfer import Transfer, TransferCount
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.memory.store import memory_store
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.settings import Freeze
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    end,
    far_offer,
    listed_instance,
    observation,
    order,
    report,
    spec,
)
from tests.store.led import led_store

Outcome = TypeVar("Outcome")
NAMES = ("a", "b")
FEW = integers(0, 9)


class Twins(RuleBasedStateMachine):
    """Two jobs whose instances are ordered, launched, refused, heard of and ended in any order.

    One that leads its database keeps in memory what it reads and writes.
    """

    template: Path
    leads = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        copy = shutil.copy(self.template, self.directory)
        self.memory = memory_store()
        self.database = (led_store if self.leads else open_store)(f"sqlite:///{copy}")
        self.now_seconds = NOW
        self.ledger_number = 0
        self.generations: dict[tuple[str, int], int] = {}
        for name in NAMES:
            self.both(lambda store, name=name: add_job(store, name))
            self.order(name)

    def teardown(self) -> None:
        self.look()
        self.database.close()
        shutil.rmtree(self.directory)

    def both(self, do: Callable[[Store], Outcome]) -> Outcome | None:
        """Do it to both stores; the answer, or None where both refused with the same words."""
        answer, refusal = _outcome(do, self.memory)
        assert (answer, refusal) == _outcome(do, self.database)
        return answer

    def alive(self, which: int) -> str:
        return _one_of(self.memory.instances.alive(), which)

    def any_instance(self, which: int) -> str:
        return _one_of(_everything(self.memory), which)

    def job(self, name: str) -> str:
        return self.memory.jobs.find(name).id

    @rule(seconds=integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.now_seconds += seconds

    @rule(name=sampled_from(NAMES))
    def order(self, name: str) -> None:
        job = self.job(name)
        taken = {held.slot for held in self.memory.instances.of_job(job)}
        held = self.both(lambda store: order(store, job, self.now_seconds, far_offer()))
        if held is None:
            return
        assert held.slot == min(set(range(len(taken) + 1)) - taken)
        assert held.generation == self.generations.get((job, held.slot), 0) + 1
        self.generations[job, held.slot] = held.generation

    @rule(which=FEW)
    def launch(self, which: int) -> None:
        instance = self.alive(which)
        cloud = listed_instance(instance, launched_seconds=self.now_seconds)
        self.both(lambda store: store.instances.observe_cloud(instance, cloud, NOW))

    @rule(which=FEW)
    def begin_launch(self, which: int) -> None:
        instance = self.any_instance(which)
        self.both(lambda store: store.instances.begin_launch(instance, self.now_seconds))

    @rule(which=FEW)
    def refuse(self, which: int) -> None:
        instance = self.alive(which)
        self.both(lambda store: store.instances.launch_failed(instance, "none left", NOW))

    @rule(which=FEW)
    def end(self, which: int) -> None:
        instance = self.alive(which)
        self.both(lambda store: end(store, instance, self.now_seconds))

    @rule(which=FEW)
    def terminate(self, which: int) -> None:
        instance = self.any_instance(which)
        self.both(lambda store: store.instances.request_termination(instance, NOW, {"a": "b"}))

    @rule(which=FEW)
    def release(self, which: int) -> None:
        instance = self.any_instance(which)
        self.both(lambda store: store.instances.release(instance, self.now_seconds))

    @rule(which=FEW, phase=sampled_from(InstancePhase))
    def hear(self, which: int, phase: InstancePhase) -> None:
        instance = self.any_instance(which)
        self.both(lambda store: store.instances.record_node(instance, phase, self.now_seconds))

    @rule(which=FEW, life=integers(0, 2), sent=FEW, fetched=FEW, name=sampled_from(NAMES))
    def transfer(self, which: int, life: int, sent: int, fetched: int, name: str) -> None:
        instance, phase = self.any_instance(which), InstancePhase.TRAINING
        count = TransferCount(NOW + life, Transfer(sent * 5_000_000, fetched * 5_000_000))
        self.both(
            lambda store: store.instances.record_node(
                instance, phase, self.now_seconds, None, self.job(name), count
            )
        )

    @rule(which=FEW, retry_seconds=none() | sampled_from((NOW, NOW + 30)), unsent=booleans())
    def fail_call(self, which: int, retry_seconds: float | None, unsent: bool) -> None:
        self.both(lambda store: store.intents.failed(which, "throttled", retry_seconds, unsent))

    @rule(which=FEW)
    def make_call(self, which: int) -> None:
        self.both(lambda store: store.intents.done(which))

    @rule(which=FEW, name=sampled_from(NAMES), step=FEW, start=integers(0, 2))
    def report(self, which: int, name: str, step: int, start: int) -> None:
        told = report(step, observations=(observation(0.1 + start, 5, step + 1),))
        instance = self.any_instance(which)
        origin = ReportOrigin(instance, 1 + start % 2, NOW + start)
        self.both(lambda store: store.reports.add(self.job(name), told, origin, self.now_seconds))

    @rule(name=sampled_from(NAMES), attempt=integers(1, 2))
    def fail(self, name: str, attempt: int) -> None:
        failure = Failure(f"{name}-0-1", attempt, 1, f"cause {attempt}", "signature", 7)
        self.both(lambda store: store.reports.add_failure(self.job(name), failure, NOW))

    @rule(name=sampled_from(NAMES), phase=sampled_from((JobPhase.PENDING, JobPhase.RUNNING)))
    def move(self, name: str, phase: JobPhase) -> None:
        self.both(lambda store: store.jobs.set_phase(self.job(name), phase, self.now_seconds))

    @rule(name=sampled_from(NAMES), last=sampled_from(JobPhase))
    def submit_again(self, name: str, last: JobPhase) -> None:
        self.both(lambda store: store.jobs.set_phase(self.job(name), last, self.now_seconds))
        self.both(lambda store: store.jobs.add(spec(name), self.now_seconds))

    @rule(name=sampled_from(NAMES), address=none() | sampled_from(("", "http://lighthouse")))
    def light(self, name: str, address: str | None) -> None:
        self.both(lambda store: store.jobs.set_lighthouse(self.job(name), address))

    @rule(is_frozen=booleans())
    def freeze(self, is_frozen: bool) -> None:
        freeze = Freeze(self.now_seconds, "ada")
        if is_frozen:
            self.both(lambda store: store.settings.freeze(freeze))
        else:
            self.both(lambda store: store.settings.unfreeze())

    @rule(name=sampled_from(NAMES), seconds=FEW)
    def measure(self, name: str, seconds: int) -> None:
        job = self.job(name)
        self.both(lambda store: store.measurements.add_duration(job, None, "boot", 1.0 + seconds))

    @rule(which=FEW)
    def refuse_offer(self, which: int) -> None:
        instance = self.alive(which)
        refuse = refusal_by(InsufficientCapacity("none left"), far_offer().id, self.now_seconds)
        self.both(lambda store: store.instances.launch_failed(instance, "none left", NOW, refuse))

    @rule()
    def accept_offer(self) -> None:
        self.both(lambda store: store.capacity.accepted(far_offer().id))

    @rule(name=sampled_from(NAMES))
    def remember(self, name: str) -> None:
        seconds = self.now_seconds
        memory = ProgramMemory(name, 1, (), seconds, 8, 1, BatchBounds(8, 8, 8, False), None)
        self.both(lambda store: store.programs.remember(memory))

    @rule(name=sampled_from(NAMES))
    def forget(self, name: str) -> None:
        self.both(lambda store: store.programs.forget(name))

    @rule()
    def look(self) -> None:
        self.both(lambda store: (store.capacity.refusals(), [*map(store.programs.recall, NAMES)]))
        self.both(lambda store: store.capacity.unavailable(self.now_seconds))
        self.both(lambda store: (store.jobs.alive(), store.jobs.all(), store.instances.alive()))
        self.both(_everything)
        self.both(lambda store: (store.intents.pending(NOW), store.intents.pending(NOW + 60)))
        self.both(lambda store: store.ledger.entries())
        self.both(lambda store: (store.jobs.ended_with_lighthouse(), store.settings.frozen()))
        self.both(lambda store: (store.ledger.after(0), store.ledger.after(self.ledger_number)))
        self.ledger_number = self.memory.ledger.after(0)[1]
        for job in self.memory.jobs.all():
            self.both(lambda store, job=job.id: _told_of(store, job))

    @invariant()
    def a_slot_holds_one(self) -> None:
        places = [(held.job, held.slot) for held in self.memory.instances.alive()]
        assert len(places) == len(set(places))

    @invariant()
    def the_ledger_follows_the_cloud(self) -> None:
        entries = self.memory.ledger.entries()
        opened = sorted(line.instance for line in entries if line.kind is EntryKind.OPEN)
        closed = sorted(line.instance for line in entries if line.kind is EntryKind.CLOSE)
        everything = _everything(self.memory)
        launched = [held for held in everything if held.launched_seconds is not None]
        assert opened == sorted(held.id for held in launched)
        assert closed == sorted(held.id for held in launched if held.ended_seconds is not None)
        Ledger(entries)


def _outcome(
    do: Callable[[Store], Outcome], store: Store
) -> tuple[Outcome | None, tuple[type[CastorError], str] | None]:
    try:
        return do(store), None
    except CastorError as error:
        return None, (type(error), str(error))


def _one_of(instances: Sequence[HeldInstance], which: int) -> str:
    """The id of one of them; of none, if there are none."""
    return instances[which % len(instances)].id if instances else "nobody"


def _everything(store: Store) -> list[HeldInstance]:
    jobs = store.jobs.all()
    return [held for job in jobs for held in store.instances.of_job(job.id, include_ended=True)]


def _told_of(store: Store, job: str) -> tuple[object, ...]:
    instances = store.instances.of_job(job, include_ended=True)
    return (
        store.instances.of_job(job),
        store.instances.never_trained(job),
        [store.intents.of_instance(held.id) for held in instances],
        store.reports.failures(job),
        store.measurements.observations(job),
        store.measurements.observations_revision(job),
        store.measurements.step_seconds(job),
        store.measurements.durations(job),
        store.measurements.noise_history(job),
        store.ledger.entries(job),
    )


@pytest.mark.timeout(400)  # only a failure takes long: it is made small
@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("examples", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_both_say_the_same(template: Path, examples: int, leads: bool) -> None:
    Twins.template, Twins.leads = template, leads
    run_state_machine_as_test(
        Twins,
        settings=settings(
            max_examples=examples,
            stateful_step_count=100,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
