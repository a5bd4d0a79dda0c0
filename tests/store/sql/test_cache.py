"""Values in the memory of a store's only writer: while they change, and after a failed commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import SessionTransaction

from autoscaler.domain.errors import StoreError
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobPhase
from autoscaler.store.opening import open_store
from autoscaler.store.sql.cache import LiveRecords, StoreCache
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.leadership import Leadership, LeaseCandidate
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, end, launch, observation
from tests.store.led import led_store
from tests.store.test_statements import counted


@dataclass(frozen=True)
class Record:
    """Record with nothing but an id."""

    id: str


FIRST, SECOND = Record("1"), Record("2")


@pytest.fixture
def records() -> LiveRecords[Record]:
    """Two records of the first epoch."""
    loaded: LiveRecords[Record] = LiveRecords(
        lambda record: True, lambda record: record.id, lambda record: "all"
    )
    loaded.load(1, (FIRST, SECOND))
    return loaded


def test_a_reader_that_began_before_a_failure_finds_all_records(
    records: LiveRecords[Record],
) -> None:
    records.clear()
    assert not records.is_loaded(1)
    assert records.all() == records.of_group("all") == (FIRST, SECOND)
    assert records.get("2") == SECOND


def test_a_reader_finds_all_records_while_they_are_loaded_again(
    records: LiveRecords[Record],
) -> None:
    read = []

    def loaded() -> Iterator[Record]:
        yield FIRST
        read.append(records.all())
        yield SECOND
        yield Record("3")

    records.clear()
    records.load(1, loaded())
    assert read == [(FIRST, SECOND)]
    assert records.all() == (FIRST, SECOND, Record("3"))


def test_an_instance_that_ends_is_missing_at_no_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = led_store(f"sqlite:///{tmp_path}/castor.db")
    job = add_job(store)
    instance = launch(store, job).id
    assert [held.id for held in store.instances.of_job(job, include_ended=True)] == [instance]
    put, listed = LiveRecords.put, []

    def observed_put(records: LiveRecords[Any], record: Any) -> None:
        put(records, record)
        if isinstance(record, HeldInstance):
            listed.append(store.instances.of_job(job, include_ended=True))

    monkeypatch.setattr(LiveRecords, "put", observed_put)
    end(store, instance)
    assert [[held.id for held in instances] for instances in listed] == [[instance]]
    store.close()


def test_nothing_is_kept_until_a_failed_commit_can_have_no_effect_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/castor.db"
    store, server = led_store(url), open_store(url)
    job = add_job(store)

    def fail(transaction: SessionTransaction) -> None:
        raise OperationalError("COMMIT", {}, Exception("the connection is lost"))

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="connection is lost"):
        patch.setattr(SessionTransaction, "commit", fail)
        store.jobs.set_lighthouse(job, "http://late")
    assert store.jobs.get(job).lighthouse is None
    assert store.reports.failures(job) == ()
    server.jobs.set_lighthouse(job, "http://late")
    assert store.jobs.get(job).lighthouse == "http://late"
    store.settings.mark("written", "1")
    assert store.jobs.get(job).lighthouse == "http://late"
    assert store.jobs.get(job) is store.jobs.get(job)
    server.close()
    store.close()


def test_values_of_one_kind_are_read_together_until_one_of_them_fails() -> None:
    cache, reads = StoreCache(), []

    def load(names: Sequence[str]) -> Mapping[str, str]:
        reads.append(tuple(names))
        if "broken" in names:
            raise ValueError("can't be read")
        return {name: f"value of {name}" for name in names}

    def get(name: str, others: Sequence[str]) -> str:
        return cache.get_of_kind(1, "kind", name, lambda: others, load)

    assert get("b", "abc") == "value of b"
    assert get("c", "abcd") == "value of c"
    cache.drop(("kind", "a"), ("kind", "c"))
    assert get("a", "abcd") == "value of a"
    assert reads == [("b", "a", "c"), ("a", "c", "d")]
    reads.clear()
    assert get("e", ["broken", "f"]) == "value of e"
    assert get("f", ["broken", "f"]) == "value of f"
    with pytest.raises(ValueError, match="can't be read"):
        get("broken", ["broken", "f"])
    assert reads == [("e", "broken", "f"), ("e",), ("f",), ("broken",)]
    assert cache.get_of_kind(None, "kind", "a", lambda: "xyz", load) == "value of a"
    assert reads[-1] == ("a",)


def test_a_value_that_changes_while_it_is_read_with_others_is_read_again() -> None:
    cache, versions = StoreCache(), {"a": 1, "b": 1}

    def load(names: Sequence[str]) -> Mapping[str, int]:
        values = {name: versions[name] for name in names}
        if versions["b"] == 1:
            versions["b"] = 2
            cache.drop(("kind", "b"))
        return values

    def get(name: str) -> int:
        return cache.get_of_kind(1, "kind", name, lambda: "ab", load)

    assert get("a") == 1
    assert get("b") == 2
    assert versions.pop("a") and get("a") == 1


def test_facts_of_all_live_jobs_are_read_by_one_statement(store: Store) -> None:
    jobs = [add_job(store, name) for name in "abc"]
    for job in jobs:
        store.measurements.add_observations(job, [observation()], NOW)
    store.jobs.set_phase(jobs[2], JobPhase.STOPPING, NOW)
    store.jobs.set_phase(jobs[2], JobPhase.STOPPED, NOW)
    store.jobs.alive()
    with counted() as statements:
        assert [len(store.measurements.observations(job)) for job in jobs[:2]] == [1, 1]
    assert sum(statement.startswith("SELECT") for statement in statements) == 1
    with counted() as statements:
        assert len(store.measurements.observations(jobs[2])) == 1
    assert sum(statement.startswith("SELECT") for statement in statements) == 1


def test_a_follower_reads_facts_together_once_it_leads(url: str) -> None:
    before = open_store(url)
    jobs = [add_job(before, name) for name in "ab"]
    fence = WriteFence()
    follower = open_store(url, fence)
    with counted() as statements:
        assert [follower.reports.failures(job) for job in jobs] == [(), ()]
    assert sum("FROM failures" in statement for statement in statements) == 2
    assert Leadership(url, LeaseCandidate("next", "http://127.0.0.1:1"), fence).acquire()
    assert len(follower.jobs.alive()) == 2
    with counted() as statements:
        assert [follower.reports.failures(job) for job in jobs] == [(), ()]
    assert sum("FROM failures" in statement for statement in statements) == 1
    follower.close()
    before.close()
