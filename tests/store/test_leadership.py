"""Lease of a store, and the fence that only its present leader passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict, NotLeading, StoreError
from autoscaler.store.opening import open_store
from autoscaler.store.sql.database import connection_arguments
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.leadership import Leadership, LeaseCandidate, acquire_free
from autoscaler.store.sql.sessions import require_sessions
from autoscaler.store.store import Store
from tests.conformance.store_examples import execute, spec
from tests.store.conftest import Create
from tests.store.test_opening import LATEST

LEASE_SECONDS = 30.0


@dataclass
class Process:
    """One process's view of a store, with its own measure of time."""

    store: Store
    leadership: Leadership
    passed_seconds: float = 0.0

    def write(self) -> None:
        self.store.settings.mark("writer", "here")


class Processes:
    """Processes that open one store."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def start(self, name: str, lease_seconds: float = LEASE_SECONDS) -> Process:
        fence = WriteFence()
        store = open_store(self.url, fence)
        self._stack.callback(store.close)
        candidate = LeaseCandidate(name, f"http://{name}:8470")
        leadership = Leadership(
            self.url, candidate, fence, lease_seconds, lambda: process.passed_seconds
        )
        self._stack.callback(leadership.release)
        process = Process(store, leadership)
        return process

    def end_lease(self) -> None:
        """Let the present lease end by the clock of the database."""
        execute(self.url, "UPDATE leadership SET expires_seconds = 1 WHERE id = 1")


@pytest.fixture
def processes(postgresql: Create) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(postgresql(), stack)


def test_one_process_leads_and_the_other_writes_nothing(processes: Processes) -> None:
    first, second = processes.start("first"), processes.start("second")
    assert first.leadership.acquire()
    assert not second.leadership.acquire()
    first.write()
    with pytest.raises(NotLeading, match="does not lead"):
        second.write()
    with pytest.raises(NotLeading):
        second.leadership.require_lease()
    assert second.store.settings.known("mark writer") == "here", "a follower reads"


def test_the_leader_is_known_to_all(processes: Processes) -> None:
    first, second = processes.start("first"), processes.start("second")
    assert second.leadership.leader() is None
    first.leadership.acquire()
    leader = second.leadership.leader()
    assert leader is not None
    assert (leader.holder, leader.address, leader.epoch) == ("first", "http://first:8470", 1)
    assert LEASE_SECONDS - 10 < leader.left_seconds <= LEASE_SECONDS


def test_a_lease_that_is_over_passes_to_another_and_the_first_is_fenced(
    processes: Processes,
) -> None:
    first, second = processes.start("first"), processes.start("second")
    first.leadership.acquire()
    processes.end_lease()
    with pytest.raises(NotLeading, match="is over until it is renewed"):
        first.write()
    assert second.leadership.acquire()
    second.write()
    with pytest.raises(NotLeading, match="its epoch is 2, and this one led in epoch 1"):
        first.write()
    assert not first.leadership.is_lost, "it has not asked yet"
    with pytest.raises(NotLeading, match="another controller leads"):
        first.leadership.renew()
    assert first.leadership.is_lost
    with pytest.raises(NotLeading, match="calls no cloud"):
        first.leadership.require_lease()


def test_a_lease_that_is_over_is_renewed_if_nobody_has_led_since(processes: Processes) -> None:
    first = processes.start("first")
    first.leadership.acquire()
    processes.end_lease()
    first.leadership.renew()
    first.write()


def test_a_released_lease_is_free_at_once(processes: Processes) -> None:
    first, second = processes.start("first"), processes.start("second")
    first.leadership.acquire()
    first.leadership.release()
    assert second.leadership.acquire()
    with pytest.raises(NotLeading):
        first.write()


def test_a_call_to_a_cloud_needs_a_lease_that_lasts(processes: Processes) -> None:
    first = processes.start("first")
    first.leadership.acquire()
    first.passed_seconds = LEASE_SECONDS - 2.1
    first.leadership.require_lease()
    first.passed_seconds = LEASE_SECONDS - 1.9
    with pytest.raises(NotLeading, match=r"ends in 1\.9 s"):
        first.leadership.require_lease()
    first.leadership.renew()
    first.leadership.require_lease()


def test_who_starts_beside_a_leader_that_renews_is_refused(processes: Processes) -> None:
    first = processes.start("first", lease_seconds=6.0)
    first.leadership.acquire()
    stopped = threading.Event()
    keeper = threading.Thread(target=first.leadership.keep, args=(stopped, lambda error: None))
    keeper.start()
    second = processes.start("second", lease_seconds=6.0)
    try:
        with pytest.raises(Conflict, match="first, at http://first:8470; stop that controller"):
            acquire_free(second.leadership, SystemClock())
    finally:
        stopped.set()
        keeper.join()


def test_who_starts_after_a_leader_that_was_killed_waits_for_the_end_of_its_lease(
    processes: Processes,
) -> None:
    first = processes.start("first", lease_seconds=1.0)
    first.leadership.acquire()
    second = processes.start("second", lease_seconds=1.0)
    acquire_free(second.leadership, SystemClock())
    second.write()


def test_nobody_takes_over_before_an_open_transaction_has_ended(processes: Processes) -> None:
    first, second = processes.start("first"), processes.start("second")
    first.leadership.acquire()
    first.write()
    outcome: list[object] = []
    taken = threading.Event()

    def take_over() -> None:
        processes.end_lease()
        outcome.append(second.leadership.acquire())
        taken.set()

    thread = threading.Thread(target=take_over)
    with _writing(first.store):
        thread.start()
        assert not taken.wait(0.5), "the row of the lease is locked for sharing"
    thread.join()
    assert outcome == [True]


def test_a_leader_that_is_frozen_in_a_transaction_holds_nobody_up(processes: Processes) -> None:
    first, second = processes.start("first", 2.0), processes.start("second")
    first.leadership.acquire()
    began_seconds = time.monotonic()
    with pytest.raises(StoreError), _writing(first.store):
        while not second.leadership.acquire():
            assert time.monotonic() - began_seconds < 60.0
            time.sleep(0.1)
        second.write()
    assert second.store.settings.known("mark writer") == "here"


def test_only_writers_are_ended_soon_when_they_do_nothing(processes: Processes) -> None:
    first = processes.start("first")
    first.leadership.acquire()
    database = first.store.settings._database  # type: ignore[attr-defined]
    limit = text("SELECT current_setting('idle_in_transaction_session_timeout')")
    for transaction, expected in ((database.write, "4s"), (database.read, "10min")):
        with transaction() as session:
            assert session.execute(limit).scalar() == expected


@contextmanager
def _writing(store: Store) -> Iterator[None]:
    """Hold a writing transaction of the store open."""
    database = store.settings._database  # type: ignore[attr-defined]
    with database.write() as session:
        session.execute(text("INSERT INTO settings (key, value) VALUES ('frozen write', 'x')"))
        yield


def test_a_keeper_hears_of_the_loss(processes: Processes) -> None:
    first, second = processes.start("first", 0.5), processes.start("second", 0.5)
    first.leadership.acquire()
    time.sleep(0.6)
    assert second.leadership.acquire()
    losses: list[NotLeading] = []
    first.leadership.keep(threading.Event(), losses.append)
    assert len(losses) == 1


def test_a_database_of_before_is_not_migrated_below_its_leader(processes: Processes) -> None:
    first = processes.start("first")
    first.leadership.acquire()
    execute(processes.url, "UPDATE alembic_version SET version_num = '0013'")
    with pytest.raises(StoreError, match="a controller leads it: stop that controller"):
        open_store(processes.url, WriteFence())
    execute(processes.url, f"UPDATE alembic_version SET version_num = '{LATEST}'")


def test_sqlite_has_the_epoch_too(tmp_path: Any) -> None:
    with ExitStack() as stack:
        processes = Processes(f"sqlite:///{tmp_path / 'castor.db'}", stack)
        first, second = processes.start("first"), processes.start("second")
        assert first.leadership.acquire()
        first.passed_seconds = 1e9
        first.leadership.renew()
        first.leadership.require_lease()
        first.write()
        assert second.leadership.acquire(), "its file lock decides, not a time"
        with pytest.raises(NotLeading, match="its epoch is 2"):
            first.write()


class Pooled:
    """Engine whose connections share one session, as behind a pooler of transactions."""

    def __init__(self, url: str) -> None:
        self._connection = create_engine(url, connect_args=connection_arguments()).connect()

    @contextmanager
    def connect(self) -> Iterator[Any]:
        yield self._connection

    def close(self) -> None:
        self._connection.close()


def test_a_pooler_of_transactions_is_refused(postgresql: Create) -> None:
    url = postgresql()
    engine = create_engine(url, connect_args=connection_arguments())
    require_sessions(engine, "here")
    engine.dispose()
    pooled = Pooled(url)
    with pytest.raises(StoreError, match=r"pooler of transactions.*pool_mode=session"):
        require_sessions(pooled, "here")  # type: ignore[arg-type]
    pooled.close()


def test_sessions_whose_options_were_ignored_are_refused(postgresql: Create) -> None:
    engine = create_engine(postgresql())
    with pytest.raises(StoreError, match="are no sessions"):
        require_sessions(engine, "here")
    engine.dispose()


def test_a_store_without_a_fence_is_written_by_tools(processes: Processes) -> None:
    processes.start("first").leadership.acquire()
    store = open_store(processes.url)
    store.jobs.add(spec("tool"), 1.0)
    store.close()
