"""Contract of a store for people, their tokens, owners, and the audit log."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.access import AccessToken, Owner, Person, Role
from autoscaler.domain.audit import AuditEntry
from autoscaler.domain.budget import Budget, BudgetScope, ScopeKind
from autoscaler.domain.errors import NotFound
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, end, launch

ADA = Person("ada", Role.SUBMITTER, "nlp")
LAPTOP = AccessToken("ada", "laptop", NOW, "owner", NOW + 60, Role.VIEWER, is_service=True)


class PeopleConformance:
    def test_a_person_is_known_by_each_token(self, store: Store) -> None:
        store.people.put(ADA)
        phone = AccessToken("ada", "phone", NOW + 1, "ada")
        store.people.add_token(LAPTOP, "hash", NOW)
        store.people.add_token(phone, "other", NOW)
        for token_hash, token in (("hash", LAPTOP), ("other", phone)):
            known = store.people.of_token(token_hash)
            assert known is not None and (known.person, known.token) == (ADA, token)
        assert store.people.of_token("no hash") is None
        assert store.people.tokens("ada") == store.people.tokens() == (LAPTOP, phone)
        assert store.people.tokens("bob") == ()

    def test_a_person_is_changed(self, store: Store) -> None:
        store.people.put(Person("bob", Role.VIEWER))
        store.people.put(ADA)
        changed = Person("ada", Role.ADMIN)
        store.people.put(changed)
        assert store.people.get("ada") == changed
        assert store.people.get("eve") is None
        assert store.people.all() == (changed, Person("bob", Role.VIEWER))

    def test_a_token_needs_a_person(self, store: Store) -> None:
        with pytest.raises(NotFound, match="castor people"):
            store.people.add_token(LAPTOP, "hash", NOW)
        assert store.people.tokens() == ()

    def test_a_token_replaces_the_one_of_its_name_in_time(self, store: Store) -> None:
        store.people.put(ADA)
        store.people.add_token(LAPTOP, "hash", NOW)
        store.people.add_token(replace(LAPTOP, created_seconds=NOW + 1), "next", NOW + 30)
        earlier, later = store.people.tokens("ada")
        assert earlier == replace(LAPTOP, revoked_seconds=NOW + 30)
        assert earlier.is_usable(NOW + 29) and not earlier.is_usable(NOW + 30)
        assert later.revoked_seconds is None

    def test_a_revoked_token_stays_known(self, store: Store) -> None:
        store.people.put(ADA)
        store.people.add_token(LAPTOP, "hash", NOW)
        assert store.people.revoke("ada", "laptop", NOW + 5)
        assert not store.people.revoke("ada", "laptop", NOW + 6)
        assert not store.people.revoke("ada", "phone", NOW + 6)
        known = store.people.of_token("hash")
        assert known is not None and known.token.revoked_seconds == NOW + 5

    def test_a_person_who_is_removed_has_no_token(self, store: Store) -> None:
        store.people.put(ADA)
        store.people.add_token(LAPTOP, "hash", NOW)
        assert store.people.remove("ada", NOW + 5)
        assert not store.people.remove("ada", NOW + 6)
        assert store.people.of_token("hash") is None
        store.people.put(ADA)
        known = store.people.of_token("hash")
        assert known is not None and known.token.is_revoked(NOW + 5)

    def test_the_last_use_is_noted(self, store: Store) -> None:
        store.people.put(ADA)
        store.people.add_token(LAPTOP, "hash", NOW)
        store.people.note_use("hash", NOW + 7)
        store.people.note_use("no hash", NOW + 7)
        assert store.people.tokens() == (replace(LAPTOP, used_seconds=NOW + 7),)


class OwnersConformance:
    def test_the_first_claim_counts(self, store: Store) -> None:
        ada, bob = Owner("ada", "nlp"), Owner("bob")
        assert store.owners.of(OwnedKind.STUDY, "sweep") == ()
        assert store.owners.claim(OwnedKind.STUDY, "sweep", ada) == ada
        assert store.owners.claim(OwnedKind.STUDY, "sweep", bob) == ada
        assert store.owners.claim(OwnedKind.PROGRAM, "sweep", bob) == bob
        assert store.owners.of(OwnedKind.STUDY, "sweep") == (ada,)
        store.owners.release(OwnedKind.STUDY, "sweep")
        assert store.owners.claim(OwnedKind.STUDY, "sweep", bob) == bob

    def test_a_bundle_has_several_owners(self, store: Store) -> None:
        for owner in (Owner("ada"), Owner("bob", "nlp"), Owner("ada", "vision")):
            store.owners.share(OwnedKind.BUNDLE, "sha", owner)
        owners = store.owners.of(OwnedKind.BUNDLE, "sha")
        assert owners == (Owner("ada", "vision"), Owner("bob", "nlp"))
        store.owners.share(OwnedKind.BUNDLE, "other", Owner("bob", "nlp"))
        store.owners.claim(OwnedKind.STUDY, "sha", Owner("eve"))
        assert store.owners.all(OwnedKind.BUNDLE) == {"sha": owners, "other": owners[1:]}
        assert store.owners.all(OwnedKind.PROGRAM) == {}


class AuditConformance:
    def test_rows_are_numbered_and_paged(self, store: Store) -> None:
        rows = [
            AuditEntry(NOW + number, "ada", "laptop", "admin", "freeze", f"s{number}", "a", "b")
            for number in range(5)
        ]
        for row in rows:
            store.audit.add(row)
        numbered = [replace(row, number=number) for number, row in enumerate(rows, 1)]
        assert store.audit.page() == tuple(reversed(numbered))
        assert store.audit.page(limit=2) == (numbered[4], numbered[3])
        assert store.audit.page(below=4, limit=2) == (numbered[2], numbered[1])
        assert store.audit.page(NOW + 3) == (numbered[4], numbered[3])
        assert store.audit.page(NOW + 3, below=5) == (numbered[3],)
        assert store.audit.page(below=0) == ()

    def test_a_row_of_a_subject_is_found(self, store: Store) -> None:
        store.audit.add(AuditEntry(NOW, "controller", "", "", "launch", "digits-0-1"))
        assert store.audit.has("launch", "digits-0-1")
        assert not store.audit.has("launch", "digits-0-2")
        assert not store.audit.has("stop job", "digits-0-1")


class BudgetsConformance:
    def test_a_scope_has_one_budget(self, store: Store) -> None:
        assert store.budgets.all() == ()
        nlp, ada = BudgetScope(ScopeKind.TEAM, "nlp"), BudgetScope(ScopeKind.PERSON, "ada")
        first = Budget(nlp, Decimal("500.10"), None, Decimal(20), "Europe/Berlin")
        fleet = Budget(BudgetScope(ScopeKind.FLEET), total_usd=Decimal("9000"))
        assert store.budgets.put(first) is None
        assert store.budgets.put(fleet) is None
        later = Budget(nlp, Decimal("600"))
        assert store.budgets.put(later) == first
        assert store.budgets.put(Budget(ada, hourly_usd=Decimal("3"))) is None
        assert store.budgets.all() == (fleet, Budget(ada, hourly_usd=Decimal("3")), later)
        assert store.budgets.remove(nlp) == later
        assert store.budgets.remove(nlp) is None
        assert [budget.scope for budget in store.budgets.all()] == [fleet.scope, ada]

    def test_only_new_lines_of_the_ledger_are_read(self, store: Store) -> None:
        assert store.ledger.after(0) == ((), 0)
        add_job(store)
        held = launch(store)
        lines, number = store.ledger.after(0)
        assert lines == store.ledger.entries() != ()
        assert store.ledger.after(number) == ((), number)
        end(store, held.id)
        later, last = store.ledger.after(number)
        assert lines + later == store.ledger.entries() and last > number
