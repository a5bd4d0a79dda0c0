"""All that the controller must not forget."""

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
    """One attribute for each aggregate; every method of theirs is one transaction.

    Safe to share between threads; other processes may have the same database open. What is
    returned are values that no later change touches. Every method may raise `StoreError`: the
    database refused or did not answer, and nothing was changed, except perhaps where the
    connection to it broke during the commit itself. `close` closes the connections.
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
