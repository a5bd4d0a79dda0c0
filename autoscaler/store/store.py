"""Durable state of the controller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from autoscaler.store.repositories.answers import KeptAnswers
from autoscaler.store.repositories.audit import Audit
from autoscaler.store.repositories.budgets import StoredBudgets
from autoscaler.store.repositories.capacity import Capacity
from autoscaler.store.repositories.events import Events
from autoscaler.store.repositories.instances import Instances
from autoscaler.store.repositories.intents import Intents
from autoscaler.store.repositories.jobs import Jobs
from autoscaler.store.repositories.journal import Journal
from autoscaler.store.repositories.ledger import LedgerLines
from autoscaler.store.repositories.measurements import Measurements
from autoscaler.store.repositories.notices import UserNotices
from autoscaler.store.repositories.owners import Owners
from autoscaler.store.repositories.people import People
from autoscaler.store.repositories.programs import Programs
from autoscaler.store.repositories.reports import Reports
from autoscaler.store.repositories.retention import Retention
from autoscaler.store.repositories.settings import Settings
from autoscaler.store.repositories.studies import StudyBook
from autoscaler.store.repositories.time_uses import TimeUses
from autoscaler.store.repositories.tokens import Tokens
from autoscaler.store.repositories.trials import Leases, Trials


@dataclass(frozen=True, eq=False)
class Store:
    """Repositories of the store, one for each aggregate; each method is one transaction.

    Threads may share a store, and other processes may open the same database. Returned values are
    immutable. Every method may raise `StoreError`: the database refused or did not answer.
    Nothing has changed then, unless the connection broke during the commit. In the context of
    `grouped`, all transactions of the thread are committed together, at its end; until then reads
    may find the state before. `close` closes the connections.
    """

    url: str
    version: str
    jobs: Jobs
    reports: Reports
    instances: Instances
    intents: Intents
    capacity: Capacity
    measurements: Measurements
    programs: Programs
    trials: Trials
    leases: Leases
    studies: StudyBook
    journal: Journal
    events: Events
    ledger: LedgerLines
    time_uses: TimeUses
    tokens: Tokens
    people: People
    owners: Owners
    budgets: StoredBudgets
    audit: Audit
    answers: KeptAnswers
    notices: UserNotices
    settings: Settings
    retention: Retention
    grouped: Callable[[], AbstractContextManager[None]]
    close: Callable[[], None]
