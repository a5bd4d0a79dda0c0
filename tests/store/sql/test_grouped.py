"""Writing transactions that are committed together, and reports that stay in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import SessionTransaction

from autoscaler.domain.errors import StoreError, UnknownJob
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.transfer import Transfer, TransferCount
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, launch
from tests.store.led import led_store

TRAINING = InstancePhase.TRAINING


@pytest.fixture
def commits() -> Iterator[list[object]]:
    """Commits of writers since the last clear."""
    counted: list[object] = []

    def count(connection: object) -> None:
        counted.append(connection)

    event.listen(Engine, "commit", count)
    yield counted
    event.remove(Engine, "commit", count)


def test_writes_of_a_group_are_one_commit(store: Store, commits: list[object]) -> None:
    job = add_job(store)
    commits.clear()
    with store.grouped():
        store.jobs.set_lighthouse(job, "http://light")
        store.events.add(Event(NOW, "note", "text", job))
        assert [each.text for each in store.events.latest(job)] == ["text"]
        assert not commits
    assert len(commits) == 1
    assert store.jobs.get(job).lighthouse == "http://light"


def test_a_group_without_writes_is_no_transaction(store: Store, commits: list[object]) -> None:
    job = add_job(store)
    store.jobs.get(job)
    commits.clear()
    with store.grouped():
        store.jobs.get(job)
    assert not commits


def test_an_error_of_one_write_leaves_the_others_of_its_group(store: Store) -> None:
    job = add_job(store)
    with store.grouped():
        store.jobs.set_lighthouse(job, "http://light")
        with pytest.raises(UnknownJob):
            store.jobs.set_lighthouse("nobody", "http://other")
        store.events.add(Event(NOW, "note", "text", job))
    assert store.jobs.get(job).lighthouse == "http://light"
    assert [each.text for each in store.events.latest(job)] == ["text"]


def test_a_group_that_is_not_committed_changes_nothing_here_or_there(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(store)
    held = launch(store, job)
    store.instances.get(held.id)

    def fail(transaction: SessionTransaction) -> None:
        raise OperationalError("COMMIT", {}, Exception("the disk is full"))

    with (
        monkeypatch.context() as patch,
        pytest.raises(StoreError, match="disk is full"),
        store.grouped(),
    ):
        store.instances.record_node(held.id, TRAINING, NOW + 100)
        store.events.add(Event(NOW, "note", "text", job))
        patch.setattr(SessionTransaction, "commit", fail)
    other = open_store(url)
    for each in (store, other):
        assert each.instances.get(held.id).phase is held.phase
        assert each.events.latest(job) == ()
    other.close()


def test_a_report_without_news_stays_in_memory_until_it_is_kept(
    store: Store, url: str, commits: list[object]
) -> None:
    held = launch(store, add_job(store))
    store.instances.record_node(held.id, TRAINING, NOW + 10)
    commits.clear()
    count = TransferCount(NOW, Transfer(5, 5))
    after = store.instances.record_node(held.id, TRAINING, NOW + 20, transfer=count)
    assert (after.seen_seconds, store.instances.get(held.id)) == (NOW + 20, after)
    assert not commits
    other = open_store(url)
    assert other.instances.get(held.id).seen_seconds == NOW + 10
    store.instances.keep_sightings()
    assert other.instances.get(held.id) == after
    store.instances.keep_sightings()
    assert len(commits) == 1
    other.close()


def test_a_write_keeps_what_was_in_memory_only(store: Store, url: str) -> None:
    held = launch(store, add_job(store))
    store.instances.record_node(held.id, TRAINING, NOW + 10)
    store.instances.record_node(held.id, TRAINING, NOW + 20)
    released = store.instances.release(held.id, NOW + 25)
    assert released.seen_seconds == NOW + 20
    other = open_store(url)
    assert other.instances.get(held.id) == released
    other.close()


def test_what_a_leader_keeps_in_memory_follows_the_lead(store: Store, url: str) -> None:
    held = launch(store, add_job(store))
    store.instances.record_node(held.id, TRAINING, NOW + 10)
    store.instances.record_node(held.id, TRAINING, NOW + 20)
    store.close()
    later = led_store(url)
    assert later.instances.get(held.id).seen_seconds == NOW + 10
    later.close()
