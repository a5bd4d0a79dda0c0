"""Contract of a database beyond that of every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import DBAPIError

from autoscaler.domain.audit import AuditEntry
from autoscaler.store.opening import open_store
from autoscaler.store.sql.journal import USE_SECONDS
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    decision,
    execute,
    launch,
    plan,
    snapshot,
)


class RecordsConformance:
    def test_common_pieces_of_snapshots_are_stored_once(self, store: Store, url: str) -> None:
        for tick, alpha in enumerate((0.1, 0.2, 0.1, 0.3)):
            planned = plan(decision())
            store.journal.add(tick, NOW + tick, snapshot(NOW, alpha), planned, planned.decisions)
        # The market; three different models, and the states of jobs that refer to these.
        assert execute(url, "SELECT count(*) FROM pieces") == 7
        store.journal.prune(NOW + 2 + USE_SECONDS)
        assert execute(url, "SELECT count(*) FROM pieces") == 5

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE ledger SET usd_per_hour = '0'",
            "DELETE FROM ledger",
            "DELETE FROM ledger WHERE instance = 'digits-0-1'",
        ],
    )
    def test_the_database_refuses_to_change_a_ledger_entry(
        self, store: Store, url: str, statement: str
    ) -> None:
        add_job(store)
        launch(store)
        before = store.ledger.entries()
        with pytest.raises(DBAPIError, match="append-only"):
            execute(url, statement)
        assert store.ledger.entries() == before

    @pytest.mark.parametrize("statement", ["UPDATE audit SET person = 'eve'", "DELETE FROM audit"])
    def test_the_database_refuses_to_change_the_audit_log(
        self, store: Store, url: str, statement: str
    ) -> None:
        store.audit.add(AuditEntry(NOW, "ada", "laptop", "admin", "freeze", "fleet"))
        before = store.audit.page()
        with pytest.raises(DBAPIError, match="append-only"):
            execute(url, statement)
        assert store.audit.page() == before != ()

    def test_one_of_many_threads_at_two_stores_burns_a_token(self, store: Store, url: str) -> None:
        add_job(store)
        launch(store)
        hashes = [f"hash {number}" for number in range(10)]
        for token_hash in hashes:
            store.tokens.issue(token_hash, "digits-0-1", NOW + 900)
        other = open_store(url)
        with ThreadPoolExecutor(8) as pool:
            burned = [
                pool.submit(opened.tokens.burn, token_hash, NOW)
                for token_hash in hashes
                for opened in (store, other) * 4
            ]
        assert sum(future.result() for future in burned) == len(hashes)
        other.close()

    def test_settings_are_chosen_once_for_all_processes(self, store: Store, url: str) -> None:
        controller = store.settings.controller_id()
        other = open_store(url)
        assert other.settings.controller_id() == controller
        assert other.settings.once("key", lambda: "first") == "first"
        assert store.settings.once("key", lambda: "second") == "first"
        other.close()
