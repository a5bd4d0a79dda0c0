"""Durable state of the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.store.capacity import Capacity
from autoscaler.store.events import Events
from autoscaler.store.instances import Instances
from autoscaler.store.intents import Intents
from autoscaler.store.jobs import Jobs
from autoscaler.store.journal import Journal
from autoscaler.store.ledger import LedgerLines
from autoscaler.store.measurements import Measurements
from autoscaler.store.programs import Programs
from autoscaler.store.reports import Reports
from autoscaler.store.settings import Settings
from autoscaler.store.studies import StudyBook
from autoscaler.store.tokens import Tokens
from autoscaler.store.trials import Leases, Trials


@dataclass(frozen=True, eq=False)
class Store:
    """Repositories of the store, one for each aggregate; each method is one transaction.

    Threads may share a store, and other processes may open the same database. Returned values are
    immutable. Every method may raise `StoreError`: the database refused or did not answer.
    Nothing has changed then, unless the connection broke during the commit. `close` closes the
    connections.
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
    tokens: Tokens
    settings: Settings
    close: Callable[[], None]
