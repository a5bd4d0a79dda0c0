"""Deletion of old facts, and the size that a deployment reaches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.access import AccessToken, Person, Role
from autoscaler.domain.job import JobPhase
from autoscaler.domain.terms import TrialProgress
from autoscaler.service.files.retention import FileRetention
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from tests.builders.days import DAY_SECONDS, Days
from tests.conformance.store_examples import NOW, spec
from tests.conformance.store_notices import STALLED, notice
from tests.store.conftest import Create
from tests.store.frozen_stores import JOIN_HASH, STUDY, failure_of, fill

# Tables whose rows are the bills and results of jobs: these stay, one or a few a job.
KEPT: Final = frozenset({"jobs", "instances", "ledger"})
KEEP_DAYS: Final = 2


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'castor.db'}"
    create: Create = request.getfixturevalue("postgresql")
    return create()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def prune_all(store: Store, before_seconds: float, most_rows: int = 1000) -> int:
    """Prune until nothing is left; return the number of calls."""
    calls = 1
    while store.retention.prune(before_seconds, most_rows):
        calls += 1
    return calls


def test_nothing_is_deleted_before_its_time(store: Store) -> None:
    fill(store)
    prune_all(store, NOW - 1)
    assert len(store.events.latest()) == len(store.journal.decisions()) == 1
    assert store.reports.failures("text") == (failure_of("text-0-1"),)
    assert store.tokens.is_good(JOIN_HASH, NOW)
    assert len(store.intents.of_instance("text-0-1")) == 1
    assert len(store.trials.waiting(STUDY)) == 1


def test_only_what_has_ended_is_deleted(store: Store) -> None:
    fill(store)
    jobs, lines = store.jobs.all(), store.ledger.entries()
    instances = store.instances.of_job("text", include_ended=True)
    prune_all(store, NOW + 1000)
    assert not store.events.latest() and not store.journal.decisions()
    assert store.reports.failures("text") == ()
    assert store.intents.of_instance("text-0-1") == ()
    assert not store.tokens.is_good(JOIN_HASH, NOW)
    # Jobs at work keep theirs.
    assert len(store.intents.of_instance("digits-1-1")) == 1
    assert store.measurements.models("digits") and store.measurements.observations("digits")
    assert len(store.trials.waiting(STUDY)) == len(store.studies.trials(STUDY)) == 1
    # Bills, results and memories stay for good.
    assert store.jobs.all() == jobs
    assert store.ledger.entries() == lines
    assert store.instances.of_job("text", include_ended=True) == instances
    assert len(store.programs.all()) == 1


def test_tokens_of_logins_are_deleted_after_their_end_and_no_others(store: Store) -> None:
    store.people.put(Person("ada", Role.VIEWER))
    for name, end_seconds in (
        ("login-laptop-1", NOW + 10),
        ("browser-1", NOW + 10),
        ("login-laptop-2", NOW + 2000),
        ("login", NOW + 10),
        ("laptop", NOW + 10),
        ("invitation", None),
    ):
        store.people.add_token(AccessToken("ada", name, NOW, "ada", end_seconds), name, NOW)
    prune_all(store, NOW + 10)
    assert len(store.people.tokens("ada")) == 6
    prune_all(store, NOW + 1000)
    names = {token.name for token in store.people.tokens("ada")}
    assert names == {"login-laptop-2", "login", "laptop", "invitation"}


def test_a_study_keeps_its_trials_until_all_have_ended(store: Store) -> None:
    fill(store)
    other = store.jobs.add(replace(spec("sweep-1"), study=STUDY), NOW).id
    store.jobs.set_phase("sweep-0", JobPhase.FAILED, NOW + 10)
    store.studies.tell(STUDY, [(TrialProgress(other), None)], NOW)
    prune_all(store, NOW + 1000)
    assert [record.stands.job for record in store.studies.trials(STUDY)] == ["sweep-0", other]
    store.jobs.set_phase(other, JobPhase.FAILED, NOW + 20)
    prune_all(store, NOW + 1000)
    assert store.studies.trials(STUDY) == ()
    terms = store.studies.terms(STUDY)
    assert terms is not None and terms.objective.budget_usd is not None
    assert store.trials.waiting(STUDY) == ()


def test_a_call_deletes_few_rows_of_each_table(store: Store) -> None:
    fill(store)
    for number in range(7):
        job = store.jobs.add(spec(f"job-{number}"), NOW).id
        store.reports.add_failure(job, replace(failure_of("a"), attempt=number), NOW)
        store.jobs.set_phase(job, JobPhase.FAILED, NOW + 1)
    left = [8]
    while store.retention.prune(NOW + 1000, 3):
        jobs = [job.id for job in store.jobs.all()]
        left.append(sum(len(store.reports.failures(job)) for job in jobs))
    assert left[:3] == [8, 5, 2]
    assert sum(len(store.reports.failures(job.id)) for job in store.jobs.all()) == 0


def test_the_state_reaches_a_plateau(store: Store, url: str, tmp_path: Path) -> None:
    """After twice the time to keep, only bills and results grow, by few bytes a job."""
    state = tmp_path / "state"
    state.mkdir()
    days = Days(store, url, state, KEEP_DAYS * DAY_SECONDS)
    sizes = []
    for _ in range(4 * KEEP_DAYS):
        days.pass_day(jobs=6)
        sizes.append(days.sizes())
    days.close()
    middle, last = sizes[2 * KEEP_DAYS], sizes[-1]
    grown = {table for table in last.rows if last.rows[table] > 1.1 * middle.rows[table] + 1}
    assert grown == KEPT
    assert min(last.rows[table] for table in ("events", "trial_calls", "failures", "intents")) > 0
    assert last.state_bytes == pytest.approx(middle.state_bytes, rel=0.05)
    jobs = last.rows["jobs"] - middle.rows["jobs"]
    assert jobs == 6 * (2 * KEEP_DAYS - 1)
    if middle.database_bytes:
        assert (last.database_bytes - middle.database_bytes) / jobs < 6_000


def test_the_file_of_a_store_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    store = open_store(f"sqlite:///{path}")
    days = Days(store, f"sqlite:///{path}", tmp_path / "state", 100 * DAY_SECONDS)
    empty_bytes = days.sizes().database_bytes
    days.pass_day(jobs=30)
    added_bytes = days.sizes().database_bytes - empty_bytes
    prune_all(store, days.clock.now() + 100 * DAY_SECONDS)
    assert days.sizes().database_bytes - empty_bytes < 0.7 * added_bytes
    days.close()
    store.close()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, float], Path]:
    def write_at(name: str, changed_seconds: float) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        for changed in (path, path.parent):
            os.utime(changed, (changed_seconds, changed_seconds))
        return path

    return write_at


def test_files_that_a_job_needs_stay(tmp_path: Path, write: Callable[[str, float], Path]) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'castor.db'}")
    jobs = {}
    for name in ("running", "recent", "old"):
        bundle = {"running": "a", "recent": "b", "old": "c"}[name] * 64
        jobs[name] = store.jobs.add(replace(spec(name), bundle=bundle), NOW).id
    store.jobs.set_phase("recent", JobPhase.FAILED, NOW + 900)
    store.jobs.set_phase("old", JobPhase.FAILED, NOW + 100)
    kept = [
        write("logs/running/a.log", NOW),
        write("logs/recent/a.log", NOW),
        write("logs/unknown-new/a.log", NOW + 900),
        write(f"bundles/{'a' * 64}.tar.gz", NOW),
        write(f"bundles/{'b' * 64}.tar.gz", NOW),
        write(f"bundles/{'d' * 64}.tar.gz", NOW + 900),
        write("files/study/new", NOW + 900),
        write("jobs/old/checkpoint", NOW),
        write("bundles/.upload", NOW + 900),
    ]
    deleted = [
        write("logs/old/a.log", NOW),
        write("logs/unknown/a.log", NOW),
        write(f"bundles/{'c' * 64}.tar.gz", NOW),
        write(f"bundles/{'e' * 64}.tar.gz", NOW),
        write("files/study/old", NOW),
        write("bundles/.cut-off", NOW - 100_000),
    ]
    files = FileRetention(tmp_path, store, 500.0, VirtualClock(NOW + 1000))
    assert files.run() == len(deleted)
    assert [path for path in kept if not path.exists()] == []
    assert [path for path in deleted if path.exists()] == []
    assert files.run() == 0
    store.close()


def test_old_notices_are_deleted_with_their_deliveries_unless_their_condition_lasts(
    store: Store,
) -> None:
    store.notices.add(notice(), ["ops"])
    store.notices.add(notice(STALLED), ["ops"])
    prune_all(store, NOW - 1)
    assert len(store.notices.latest()) == 2
    prune_all(store, NOW + 1)
    assert [known.key for known in store.notices.known()] == [STALLED]
    assert [entry.notice.key for entry in store.notices.latest()] == [STALLED]
    store.notices.end(STALLED, NOW + 5)
    prune_all(store, NOW + 6)
    assert store.notices.known() == ()
