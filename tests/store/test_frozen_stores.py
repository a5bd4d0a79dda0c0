"""Stores that earlier versions wrote, opened by today's code."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from alembic import command
from sqlalchemy import create_engine

from autoscaler.domain.access import Owner, Person, Role
from autoscaler.domain.errors import NotLeading, StoreError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.intent import IntentState
from autoscaler.domain.job import JobPhase
from autoscaler.domain.terms import StudyTerms
from autoscaler.domain.trial import TrialAnswer, TrialCall
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.opening import open_store, open_to_read
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.repositories.settings import Freeze
from autoscaler.store.sql.copying import copy_rows, sqlite_version
from autoscaler.store.sql.file_lock import hold_database
from autoscaler.store.sql.migration import newest_version
from autoscaler.store.sql.upgrading import alembic_config
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    decision,
    full_spec,
    launch,
    model,
    observation,
    plan,
    report,
    snapshot,
)
from tests.conformance.store_programs import memory
from tests.store.conftest import Create
from tests.store.frozen_stores import (
    AUDIT,
    CONTROLLER,
    FROZEN,
    JOIN_HASH,
    PERSON_HASH,
    STUDY,
    TERMS,
    TIME,
    USED_HASH,
    failure_of,
    frozen_path,
    person_of,
)

VERSIONS = sorted(path.stem.removeprefix("v") for path in FROZEN.glob("v*.sql"))
# The first versions with tables for programs, for calls of trials, and for terms of studies.
PROGRAMS, TRIALS, TERMS_OF_STUDIES = "0002", "0003", "0004"
# The first version that settles step times only after some steps of one speed.
ERAS = "0009"
# The first version with roles, owners, node tokens and the audit log.
ACCESS = "0013"
# The first version that counts the use of time.
TIMES = "0018"


def test_every_version_has_a_frozen_store() -> None:
    expected = [f"{number:04}" for number in range(1, int(newest_version()) + 1)]
    assert expected == VERSIONS, (
        f"version {newest_version()} has no frozen store: run python -m "
        "tests.store.frozen_stores and commit the file; earlier ones are never written again"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_of_an_upgraded_store_are_those_of_a_new_one(
    version: str, tmp_path: Path
) -> None:
    upgraded, new = tmp_path / "upgraded.db", tmp_path / "new.db"
    read_into_sqlite(version, upgraded)
    for path in (upgraded, new):
        open_store(f"sqlite:///{path}").close()
    assert statements(upgraded) == statements(new)


def test_the_store_of_before_is_kept_beside_its_upgrade(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, copy = tmp_path / "castor.db", tmp_path / "castor.db.v0011"
    read_into_sqlite("0011", path)
    for _ in range(2):
        open_store(f"sqlite:///{path}").close()
    assert [record.getMessage() for record in caplog.records if "backup" in record.msg] == [
        f"the tables of {path} change now; a backup of before: {copy}"
    ]
    assert {file.name for file in tmp_path.iterdir()} == {"castor.db", "castor.db.v0011"}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sqlite_version(copy) == "0011"
    require_same_meaning(f"sqlite:///{copy}", "0011")


def can_shrink(path: Path) -> bool:
    with sqlite3.connect(path) as connection:
        return bool(connection.execute("PRAGMA auto_vacuum").fetchone()[0] == 2)


def test_the_file_of_an_upgraded_store_can_shrink(tmp_path: Path) -> None:
    for path in (tmp_path / "castor.db", tmp_path / "new.db"):
        if path.name == "castor.db":
            read_into_sqlite("0011", path)
            assert not can_shrink(path)
        open_store(f"sqlite:///{path}").close()
        assert can_shrink(path)


def test_without_room_the_file_of_an_upgraded_store_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "castor.db"
    read_into_sqlite("0011", path)
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=100))
    open_store(f"sqlite:///{path}").close()
    assert not can_shrink(path)
    assert "can't shrink: 100 bytes of disk are free" in caplog.text


def test_a_store_whose_backup_cannot_be_written_is_not_upgraded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "castor.db"
    read_into_sqlite("0011", path)
    (tmp_path / ".castor.db.v0011.partial").mkdir()
    with pytest.raises(StoreError, match=r"not upgraded, because its backup .*v0011 can't"):
        open_store(f"sqlite:///{path}")
    assert sqlite_version(path) == "0011"


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-2], VERSIONS[-1]])
def test_a_command_that_reads_changes_no_store(version: str, tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    read_into_sqlite(version, path)
    before = path.read_bytes()
    store = open_to_read(f"sqlite:///{path}")
    assert store.version == newest_version()
    assert store.jobs.get("digits").id == "digits"
    assert len(store.journal.decisions()) == 1
    with pytest.raises(NotLeading):
        store.settings.mark("written", "1")
    directory = Path(store.url.removeprefix("sqlite:///")).parent
    store.close()
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["castor.db"]
    assert directory == tmp_path or not directory.exists()


def test_a_store_of_another_version_is_not_migrated_beside_its_controller(tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    read_into_sqlite("0013", path)
    with hold_database(f"sqlite:///{path}", tmp_path), sqlite3.connect(path) as controller:
        open_to_read(f"sqlite:///{path}").close()
        controller.execute("UPDATE jobs SET phase = phase")
        assert sqlite_version(path) == "0013"


def statements(path: Path) -> set[tuple[str, str]]:
    """Return names and statements of all tables, indexes and triggers of an SQLite file."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master")
        return {(name, " ".join((statement or "").split())) for name, statement in rows}


def read_into_sqlite(version: str, path: Path) -> None:
    """Make the frozen store of a version as an SQLite file."""
    with sqlite3.connect(path) as connection:
        connection.executescript(frozen_path(version).read_text())
    connection.close()


def check_jobs(store: Store, version: str) -> None:
    digits, ended = store.jobs.get("digits"), store.jobs.get("text")
    assert (digits.spec, digits.phase, digits.attempt) == (full_spec(), JobPhase.RUNNING, 1)
    assert (digits.submitted_seconds, digits.started_seconds) == (NOW, NOW + 10)
    assert digits.lighthouse == "roster://host:7"
    assert digits.report == report(engine="roster", observations=(), pauses=())
    assert (ended.phase, ended.ended_seconds) == (JobPhase.FAILED, NOW + 100)
    assert (ended.cause, ended.stop_reason) == ("out of memory", None)
    assert store.reports.failures("text") == (failure_of("text-0-1"),)
    assert store.jobs.find("digits") == digits


def check_instances_and_intents(store: Store, version: str) -> None:
    training, ordered = store.instances.of_job("digits")
    assert (training.phase, training.cloud_id) == (InstancePhase.TRAINING, "i-digits-0-1")
    assert training.usd_per_hour == Decimal("0.05") == training.costing_usd_per_hour
    assert training.facts == {"image": "image:1"}
    assert (ordered.id, ordered.phase) == ("digits-1-1", InstancePhase.REQUESTED)
    (intent,) = store.intents.of_instance("digits-1-1")
    assert (intent.token, intent.state) == ("token of digits-1-1", IntentState.PENDING)
    assert [held.id for held in store.instances.alive()] == ["digits-0-1", "digits-1-1"]


def check_money(store: Store, version: str) -> None:
    ledger = Ledger(store.ledger.entries())
    assert ledger.spent("text", NOW + 9999) == Decimal("0.05") * 99 / 3600
    assert ledger.spent("digits", NOW + 3601) == Decimal("0.05")
    assert ledger.rate_usd_per_hour(NOW + 3601) == Decimal("0.05")


def check_tokens_and_settings(store: Store, version: str) -> None:
    assert store.tokens.is_good(JOIN_HASH, NOW + 899)
    assert not store.tokens.is_good(JOIN_HASH, NOW + 901)
    assert not store.tokens.is_good(USED_HASH, NOW + 10)
    assert person_of(store, PERSON_HASH) == "ada"
    assert store.settings.controller_id() == CONTROLLER
    has_freeze = version >= PROGRAMS
    assert store.settings.frozen() == (Freeze(NOW + 50, "owner") if has_freeze else None)


def check_access(store: Store, version: str) -> None:
    """People of before roles keep what they could do, and their first jobs' things."""
    known = store.people.of_token(PERSON_HASH)
    assert known is not None
    assert known.person == Person("ada", Role.OPERATOR)
    assert (known.token.name, known.token.expires_seconds) == ("invitation", None)
    has_access = version >= ACCESS
    if version >= TRIALS:
        assert store.owners.of(OwnedKind.STUDY, STUDY) == (Owner("owner"),)
    programs = [store.owners.of(OwnedKind.PROGRAM, name) for name in ("text", "nothing")]
    assert programs == ([(), ()] if has_access else [(Owner("owner"),), ()])
    assert store.owners.of(OwnedKind.BUNDLE, JOIN_HASH) == (
        (Owner("ada", "nlp"),) if has_access else ()
    )
    assert store.tokens.has_node("digits-0-1") == has_access
    has_times = version >= TIMES
    assert store.time_uses.of_job("digits") == ({"digits-0-1": TIME} if has_times else {})
    assert store.audit.page() == ((replace(AUDIT, number=1),) if has_access else ())


def check_measurements(store: Store, version: str) -> None:
    known = replace(observation(), is_settled=version < ERAS)
    assert store.measurements.observations("digits") == (known,)
    assert store.measurements.models("digits") == {"cpu-core": model()}
    start = store.measurements.durations("digits")["local-small", "start"]
    assert (start.seconds, start.count) == (12.5, 1)
    assert len(store.measurements.noise_history("digits")) == 1
    assert store.programs.all() == ((memory(),) if version >= PROGRAMS else ())


def check_journal_and_events(store: Store, version: str) -> None:
    (entry,) = store.journal.decisions("digits")
    assert entry.decision == decision()
    assert store.journal.inputs(entry) == snapshot()
    assert store.journal.plan(entry) == plan(decision())
    assert [event.text for event in store.events.latest("digits")] == ["grow digits"]


def check_a_study(store: Store, version: str) -> None:
    if version < TRIALS:
        return
    assert store.jobs.get("sweep-0").spec.study == STUDY
    assert store.trials.answers("sweep-0", 1, after=0) == (TrialAnswer(1, "go on"),)
    assert [call.call for call in store.trials.waiting(STUDY)] == [TrialCall(2, "report 0.6")]
    assert store.leases.holder(STUDY, NOW + 59) == "driver-1"
    has_terms = version >= TERMS_OF_STUDIES
    assert store.studies.terms(STUDY) == (TERMS if has_terms else None)
    progress = [record.stands.progress for record in store.studies.trials(STUDY)]
    assert progress == ([2.0] if has_terms else [])


def check_new_rows_follow_the_old_ones(store: Store, version: str) -> None:
    """A job goes on: reports, orders and ledger lines are added to old rows."""
    store.instances.record_node("digits-0-1", InstancePhase.DRAINED, NOW + 200)
    store.instances.request_termination("digits-0-1", NOW + 200)
    assert [intent.instance for intent in store.intents.pending(NOW + 300)] == [
        "digits-1-1",
        "digits-0-1",
    ]
    store.jobs.set_phase("digits", JobPhase.FAILED, NOW + 300)
    again = store.jobs.add(full_spec(), NOW + 301)
    assert again.id == "digits.2"
    assert launch(store, again.id).id == "digits.2-0-1"
    assert Ledger(store.ledger.entries()).rate_usd_per_hour(NOW + 400) == Decimal("0.10")
    if version >= TERMS_OF_STUDIES:
        store.studies.state(STUDY, StudyTerms())


CHECKS: Final = (
    check_jobs,
    check_instances_and_intents,
    check_money,
    check_tokens_and_settings,
    check_access,
    check_measurements,
    check_journal_and_events,
    check_a_study,
    check_new_rows_follow_the_old_ones,
)


def require_same_meaning(url: str, version: str) -> None:
    """Check the facts of `fill` in the store of a version, opened by today's code."""
    store = open_store(url)
    for check in CHECKS:
        check(store, version)
    store.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_store_of_sqlite_means_the_same(version: str, tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    read_into_sqlite(version, path)
    require_same_meaning(f"sqlite:///{path}", version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_store_of_postgresql_means_the_same(
    version: str, tmp_path: Path, postgresql: Create
) -> None:
    url = postgresql()
    read_into_sqlite(version, tmp_path / "frozen.db")
    engine = create_engine(url)
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    frozen = create_engine(f"sqlite:///{tmp_path / 'frozen.db'}")
    with engine.begin() as connection, frozen.connect() as rows:
        copy_rows(rows, connection)
    frozen.dispose()
    engine.dispose()
    require_same_meaning(url, version)
