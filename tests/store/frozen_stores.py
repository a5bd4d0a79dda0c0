"""Stores as each version of the tables left them: ``python -m tests.store.frozen_stores``.

The command writes the store of the newest version to `frozen/`, as SQL text of SQLite. The last
code of each earlier version wrote its store with the facts of `fill`; these files never change.
Tests open all of them with today's code, on both databases.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from autoscaler.domain.access import AccessToken, Owner, Person, Role
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.audit import AuditEntry
from autoscaler.domain.budget import Budget, BudgetScope, ScopeKind
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.notice import NoticeKey, NoticeKind, UserNotice
from autoscaler.domain.objective import Objective
from autoscaler.domain.report import Failure, ReportOrigin
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.repositories.settings import Freeze
from autoscaler.store.repositories.tokens import NodeToken
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    decision,
    end,
    full_spec,
    launch,
    model,
    order,
    plan,
    report,
    snapshot,
    spec,
)
from tests.conformance.store_programs import memory

FROZEN: Final = Path(__file__).with_name("frozen")
CONTROLLER: Final = "1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f"
# Hashes of tokens that the store knows: of a join, unused and used, and of a person.
JOIN_HASH: Final = "0a" * 32
USED_HASH: Final = "0b" * 32
PERSON_HASH: Final = "0c" * 32
NODE_HASH: Final = "0d" * 32
AUDIT: Final = AuditEntry(NOW, "ada", "invitation", "operator", "stop job", "text", "running")
NOTICE: Final = UserNotice(NoticeKey(NoticeKind.FAILED, "text"), NOW + 100, "text failed", "text")
TIME: Final = TimeCount(NOW + 5, TimeUse(10.0, 2.0), CostCategory.USEFUL)
STUDY: Final = "sweep"
BUDGET: Final = Budget(BudgetScope(ScopeKind.TEAM, "nlp"), Decimal("500"), zone="Europe/Berlin")
TERMS: Final = StudyTerms(objective=Objective(budget_usd=Decimal("12.50")), to_begin=3)


def fill(store: Store) -> None:
    """Write representative facts of jobs, instances, a study, tokens and measurements."""
    store.settings.once("controller_id", lambda: CONTROLLER)
    store.settings.freeze(Freeze(NOW + 50, "owner"))
    _add_training_job(store)
    _add_ended_job(store)
    _add_trial(store)
    store.people.put(Person("ada", Role.OPERATOR))
    store.people.add_token(AccessToken("ada", "invitation", NOW, "owner"), PERSON_HASH, NOW)
    store.tokens.issue(JOIN_HASH, "digits-1-1", NOW + 900)
    store.tokens.issue(USED_HASH, "digits-0-1", NOW + 900)
    store.tokens.burn(USED_HASH, NOW + 2)
    store.events.add(Event(NOW + 3, "resize", "grow digits", "digits"))
    store.journal.add(1, NOW, snapshot(), plan(decision()), (decision(),))
    store.programs.remember(memory())
    store.owners.claim(OwnedKind.STUDY, STUDY, Owner("owner"))
    store.owners.share(OwnedKind.BUNDLE, JOIN_HASH, Owner("ada", "nlp"))
    store.tokens.put_node(NODE_HASH, NodeToken("digits-0-1", NOW, NOW + 4200))
    store.audit.add(AUDIT)
    store.notices.add(NOTICE, ["ops"])
    store.budgets.put(BUDGET)


def _add_training_job(store: Store) -> None:
    """Add a job with an instance that trains and one whose launch may have been sent."""
    store.jobs.add(full_spec(), NOW)
    held = launch(store)
    store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 10, {"image": "image:1"})
    store.jobs.set_phase("digits", JobPhase.RUNNING, NOW + 10)
    store.jobs.set_lighthouse("digits", "roster://host:7")
    store.reports.add("digits", report(engine="roster"), ReportOrigin(held.id, 1, NOW), NOW + 20)
    store.measurements.save_models("digits", {"cpu-core": model()})
    store.measurements.add_duration("digits", "local-small", "start", 12.5)
    store.time_uses.count(held.id, "digits", TIME, NOW)
    store.time_uses.keep(NOW + 20)
    order(store, now_seconds=NOW + 30)


def _add_ended_job(store: Store) -> None:
    """Add a job that failed once, ended, and paid for 99 s of an instance."""
    store.jobs.add(spec("text"), NOW)
    held = launch(store, "text")
    store.reports.add_failure("text", failure_of(held.id), NOW + 40)
    end(store, held.id)
    store.jobs.set_phase("text", JobPhase.FAILED, NOW + 100, "out of memory")


def _add_trial(store: Store) -> None:
    """Add a trial of a study with terms, whose driver has answered the first of two calls."""
    job = store.jobs.add(replace(spec("sweep-0"), study=STUDY), NOW).id
    number = store.trials.begin(job, "sweep-0-0-1", NOW)
    store.trials.tell(job, number, [TrialCall(1, "report 0.5"), TrialCall(2, "report 0.6")])
    store.trials.answer(STUDY, [GivenAnswer(job, number, TrialAnswer(1, "go on"))])
    store.leases.take(STUDY, "driver-1", NOW, 60.0)
    store.studies.state(STUDY, TERMS)
    size = Allocation("local-small", 1, 1)
    store.studies.tell(STUDY, [(TrialProgress(job, progress=2.0), size)], NOW + 5)


def failure_of(instance: str) -> Failure:
    """Return the failure of the job that has ended."""
    return Failure(instance, 1, 1, "out of memory", "oom", 7, ("line 1", "line 2"))


def person_of(store: Store, token_hash: str) -> str | None:
    """Return the person whose token has this hash."""
    known = store.people.of_token(token_hash)
    return None if known is None else known.person.name


def frozen_path(version: str) -> Path:
    """Return the path of the frozen store of a version, such as "0012"."""
    return FROZEN / f"v{version}.sql"


def write_frozen_store(directory: Path) -> Path:
    """Write the frozen store of the newest version; return its path."""
    path = directory / "castor.db"
    store = open_store(f"sqlite:///{path}")
    fill(store)
    store.close()
    with sqlite3.connect(path) as connection:
        frozen_path(store.version).write_text("\n".join(connection.iterdump()) + "\n")
    return frozen_path(store.version)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(f"written: {write_frozen_store(Path(scratch))}", file=sys.stderr)
