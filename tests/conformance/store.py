"""Contract of `autoscaler.store.store.Store` as tests.

Subclass `StoreConformance` and define a fixture `store` with an empty store. For a database under
SQLAlchemy subclass `DatabaseConformance` and define a fixture `url` of an existing, empty store.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from copy import deepcopy

import pytest

from autoscaler.domain.job import JobPhase
from autoscaler.domain.spending import EntryKind
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store
from tests.conformance.store_access import (
    AuditConformance,
    BudgetsConformance,
    OwnersConformance,
    PeopleConformance,
)
from tests.conformance.store_answers import AnswersConformance
from tests.conformance.store_database import RecordsConformance
from tests.conformance.store_examples import NOW, add_job, end, launch, order
from tests.conformance.store_hand_over import HandOverConformance
from tests.conformance.store_instances import (
    BillingConformance,
    CapacityConformance,
    InstancesConformance,
    IntentsConformance,
)
from tests.conformance.store_job_lists import JobListsConformance
from tests.conformance.store_jobs import JobsConformance, ReportsConformance
from tests.conformance.store_notices import NoticesConformance
from tests.conformance.store_programs import ProgramsConformance
from tests.conformance.store_queue import QueueConformance
from tests.conformance.store_records import (
    JournalConformance,
    LedgerConformance,
    MeasurementsConformance,
    TokensConformance,
)
from tests.conformance.store_time_uses import TimeUsesConformance
from tests.conformance.store_transfers import TransfersConformance
from tests.conformance.store_trials import TrialsConformance


class ProcessesConformance:
    """Contract of a store that several processes use, one of which may be killed."""

    def test_a_death_within_a_transaction_leaves_nothing_of_it(
        self, store: Store, url: str
    ) -> None:
        add_job(store)
        child = _child(
            url,
            """
            def hang(instance):
                print("in the middle", flush=True)
                sys.stdin.read()

            order(store)
            store.instances.order("digits", offer(), 1, hang, NOW)
            """,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        assert [held.id for held in store.instances.alive()] == ["digits-0-1"]
        child.kill()
        child.wait()
        assert order(store).id == "digits-1-1"
        assert len(store.intents.pending(NOW)) == 2

    def test_a_death_at_any_moment_leaves_whole_transactions(self, store: Store, url: str) -> None:
        add_job(store)
        child = _child(
            url,
            """
            while True:
                held = launch(store)
                print(held.id, flush=True)
                end(store, held.id)
            """,
        )
        assert child.stdout is not None
        printed = [child.stdout.readline().strip() for _ in range(20)]
        child.kill()
        printed += child.stdout.read().split()
        child.wait()
        kept = store.instances.of_job("digits", include_ended=True)
        assert {held.id for held in kept} >= set(printed)
        lines = [(entry.instance, entry.kind) for entry in store.ledger.entries()]
        for held in kept:
            assert len(store.intents.of_instance(held.id)) == 1
            opened, closed = (
                lines.count((held.id, kind)) for kind in (EntryKind.OPEN, EntryKind.CLOSE)
            )
            assert opened == (held.launched_seconds is not None)
            assert closed == (held.ended_seconds is not None)

    def test_processes_take_turns(self, store: Store, url: str) -> None:
        add_job(store)
        order(store)
        for number in range(50):
            store.tokens.issue(f"hash {number}", "digits-0-1", NOW + 900)
        program = """
            sys.stdin.read(1)
            for _ in range(25):
                order(store)
            print(sum(store.tokens.burn(f"hash {number}", NOW) for number in range(50)))
            """
        children = [_child(url, program) for _ in range(2)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("x")
            child.stdin.flush()
        assert sum(int(child.communicate()[0]) for child in children) == 50
        slots = [held.slot for held in store.instances.alive()]
        assert sorted(slots) == list(range(51))


class StoreConformance(
    JobsConformance,
    JobListsConformance,
    AnswersConformance,
    ReportsConformance,
    InstancesConformance,
    HandOverConformance,
    QueueConformance,
    BillingConformance,
    TimeUsesConformance,
    TransfersConformance,
    IntentsConformance,
    CapacityConformance,
    MeasurementsConformance,
    ProgramsConformance,
    JournalConformance,
    LedgerConformance,
    TokensConformance,
    PeopleConformance,
    OwnersConformance,
    AuditConformance,
    NoticesConformance,
    BudgetsConformance,
    TrialsConformance,
):
    """Whole contract of a store."""

    def test_returned_values_never_change(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.capacity.refused("a", "none", NOW, NOW + 60)
        store.measurements.add_duration("digits", None, "restore", 1.0)

        def values() -> tuple[object, ...]:
            return (
                store.jobs.get("digits"),
                store.jobs.alive(),
                store.instances.get(held.id),
                store.instances.alive(),
                store.intents.of_instance(held.id),
                store.ledger.entries(),
                store.capacity.refusals(),
                store.measurements.durations("digits"),
                store.events.latest(),
            )

        before = values()
        copied = deepcopy(before)
        store.jobs.set_phase("digits", JobPhase.RUNNING, NOW)
        store.instances.request_termination(held.id, NOW, {"given up": "why"})
        end(store, held.id)
        store.capacity.accepted("a")
        store.measurements.add_duration("digits", None, "restore", 3.0)
        store.events.add(Event(NOW, "lost", "digits-0-1 was reclaimed", "digits"))
        assert before == copied
        assert all(now != earlier for now, earlier in zip(values(), before, strict=True))


class DatabaseConformance(StoreConformance, RecordsConformance, ProcessesConformance):
    """Contract of a store that several processes may open and that outlives a process."""

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = open_store(url)
        yield store
        store.close()


def _child(url: str, program: str) -> subprocess.Popen[str]:
    head = f"""
        import sys
        from autoscaler.store.opening import open_store
        from tests.conformance.store_examples import NOW, end, launch, offer, order
        store = open_store({url!r})
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
