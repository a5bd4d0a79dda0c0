"""Plans of a leader, which stores of each snapshot what is new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.sql.journal import USE_SECONDS
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, decision, execute, plan, snapshot
from tests.store.led import led_store
from tests.store.test_statements import counted

MOST_STATEMENTS = 10


def with_jobs(count: int, seconds: float = NOW, spent_usd: float = 0.1) -> Snapshot:
    """Return a snapshot of many jobs, of which the first has spent something."""
    moment = snapshot(seconds)
    (job,) = moment.jobs
    jobs = [replace(job, id=f"job-{number}") for number in range(count)]
    jobs[0] = replace(jobs[0], spent_usd=spent_usd)
    return replace(moment, jobs=tuple(jobs))


def add(store: Store, moment: Snapshot) -> None:
    planned = plan(decision())
    store.journal.add(1, moment.now_seconds, moment, planned, planned.decisions)


@pytest.mark.parametrize("jobs", [2, 300])
def test_a_plan_is_stored_in_as_many_statements_for_many_jobs_as_for_few(
    store: Store, jobs: int
) -> None:
    add(store, with_jobs(jobs))
    with counted() as statements:
        add(store, with_jobs(jobs, NOW + 1, 0.2))
    assert len(statements) <= MOST_STATEMENTS


def test_all_snapshots_are_read_again_after_changes_and_a_new_start(url: str) -> None:
    moments = [with_jobs(5 + number % 3, NOW + number, float(number)) for number in range(6)]
    for some in (moments[:3], moments[3:]):
        store = led_store(url)
        for moment in some:
            add(store, moment)
        store.close()
    store = led_store(url)
    entries = store.journal.decisions()[::-1]
    assert [store.journal.inputs(entry) for entry in entries] == moments
    store.close()


def test_pieces_in_use_outlive_the_plans_that_first_used_them(store: Store, url: str) -> None:
    hours = [with_jobs(3, NOW + USE_SECONDS * hour, float(hour)) for hour in range(6)]
    for moment in hours:
        add(store, moment)
    store.journal.prune(hours[-1].now_seconds)
    (entry,) = store.journal.decisions()
    assert store.journal.inputs(entry) == hours[-1]
    assert execute(url, "SELECT count(*) FROM pieces") != 0
    store.journal.prune(hours[-1].now_seconds + 2 * USE_SECONDS)
    assert execute(url, "SELECT count(*) FROM pieces") == 0


def test_pieces_that_were_deleted_meanwhile_are_stored_again(store: Store, url: str) -> None:
    add(store, with_jobs(3))
    execute(url, "DELETE FROM pieces")
    later = with_jobs(3, NOW + 2 * USE_SECONDS, 0.2)
    add(store, later)
    assert store.journal.inputs(store.journal.decisions(limit=1)[0]) == later
