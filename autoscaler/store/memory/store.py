"""Store in memory."""

from __future__ import annotations

from contextlib import nullcontext

from autoscaler.store.memory.answers import MemoryAnswers
from autoscaler.store.memory.audit import MemoryAudit
from autoscaler.store.memory.budgets import MemoryBudgets
from autoscaler.store.memory.capacity import MemoryCapacity
from autoscaler.store.memory.events import MemoryEvents
from autoscaler.store.memory.instances import MemoryInstances
from autoscaler.store.memory.intents import MemoryIntents
from autoscaler.store.memory.jobs import MemoryJobs
from autoscaler.store.memory.journal import MemoryJournal
from autoscaler.store.memory.ledger import MemoryLedgerLines
from autoscaler.store.memory.measurements import MemoryMeasurements
from autoscaler.store.memory.notices import MemoryNotices
from autoscaler.store.memory.owners import MemoryOwners
from autoscaler.store.memory.people import MemoryPeople
from autoscaler.store.memory.programs import MemoryPrograms
from autoscaler.store.memory.reports import MemoryReports
from autoscaler.store.memory.retention import MemoryRetention
from autoscaler.store.memory.settings import MemorySettings
from autoscaler.store.memory.studies import MemoryStudyBook
from autoscaler.store.memory.tables import Tables
from autoscaler.store.memory.time_uses import MemoryTimeUses
from autoscaler.store.memory.tokens import MemoryTokens
from autoscaler.store.memory.trials import MemoryLeases, MemoryTrials
from autoscaler.store.store import Store


def memory_store(inputs_kept: int = 100) -> Store:
    """Return a new store in memory, for simulations. It is lost when its process ends.

    Args:
        inputs_kept: number of latest plans whose snapshots the journal keeps.
    """
    tables = Tables()
    measurements = MemoryMeasurements(tables)
    journal, events = MemoryJournal(tables, inputs_kept), MemoryEvents(tables)
    return Store(
        url="memory",
        version="memory",
        jobs=MemoryJobs(tables),
        reports=MemoryReports(tables, measurements),
        instances=MemoryInstances(tables),
        intents=MemoryIntents(tables),
        capacity=MemoryCapacity(tables),
        measurements=measurements,
        programs=MemoryPrograms(tables),
        trials=MemoryTrials(tables),
        leases=MemoryLeases(tables),
        studies=MemoryStudyBook(tables),
        journal=journal,
        events=events,
        ledger=MemoryLedgerLines(tables),
        time_uses=MemoryTimeUses(tables),
        tokens=MemoryTokens(tables),
        people=MemoryPeople(tables),
        owners=MemoryOwners(tables),
        budgets=MemoryBudgets(tables),
        audit=MemoryAudit(tables),
        answers=MemoryAnswers(tables),
        notices=MemoryNotices(tables),
        settings=MemorySettings(tables),
        retention=MemoryRetention(journal, events),
        grouped=nullcontext,
        close=lambda: None,
    )
