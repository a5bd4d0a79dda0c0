"""Export of the charges of a period, from the bills of that period alone."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.access import OWNER
from autoscaler.domain.facts import Fact
from autoscaler.domain.report import ReportOrigin
from autoscaler.domain.time_use import TimeCount, TimeUse
from autoscaler.ledger.bill import Charge
from autoscaler.ledger.focus import FocusJob, focus_rows
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.receipt import charge_splits
from autoscaler.service.jobs import focus_export
from autoscaler.service.jobs.focus_export import FocusExport
from autoscaler.service.jobs.receipts import time_records
from autoscaler.service.jobs.stored_costs import StoredCosts
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from tests.conformance.store_examples import end, listed_instance, order, report, spec
from tests.store.read_lines import read_lines
from tests.store.test_statements import counted

DAY = 86_400.0
BEGIN = 20_000 * DAY
FIRST = datetime.fromtimestamp(BEGIN, UTC).date()
NOW = BEGIN + 12.5 * DAY


def add(store: Store, name: str, day: float, days: float | None) -> str:
    """Add a job with an instance from a day on, for so many days; None: it still runs."""
    job = store.jobs.add(replace(spec(name), team="nlp"), BEGIN).id
    launched_seconds = BEGIN + day * DAY + 0.3
    held = order(store, job, launched_seconds)
    seen = listed_instance(held.id, launched_seconds=launched_seconds)
    store.instances.observe_cloud(held.id, seen, launched_seconds)
    count = TimeCount(launched_seconds + 9.0, TimeUse(2000.0, 30.0, 4.0))
    store.time_uses.count(held.id, job, count, launched_seconds)
    if days is not None:
        end(store, held.id, launched_seconds + days * DAY)
    return held.id


@pytest.fixture
def store(tmp_path: Path, template: Path) -> Iterator[Store]:
    """Yield a store in which a job runs each day, and some run for long."""
    store = open_store(f"sqlite:///{shutil.copy(template, tmp_path / 'castor.db')}")
    for day in range(12):
        add(store, f"day-{day}", day + 0.2, 0.4 + day / 7)
    long = add(store, "long", 0.0, None)
    for step, attempt in ((100, 1), (105, 2)):
        origin = ReportOrigin(long, attempt, BEGIN + attempt)
        earlier = report(step, steps=90 - 70 * (attempt - 1), trained_seconds=50.0)
        store.reports.add("long", earlier, origin, BEGIN + 60 * attempt)
    again = add(store, "again", 1.0, 0.01)
    store.instances.bill_again(again, NOW)
    add(store, "edge", 3.0 - 30 / DAY, 10 / DAY)  # its minimum passes midnight
    leader, alone = add(store, "none", 2.0, 1.0), add(store, "silent", 2.5, 1.0)
    store.instances.note(leader, {Fact.UNOPENED: str(BEGIN + 2.1 * DAY)})
    store.instances.note(leader, {Fact.WITHOUT_SESSION: str(BEGIN + 2.2 * DAY)})
    assert {leader, alone} <= {line.instance for line in store.ledger.entries()}
    yield store
    store.close()


def rows_of_all(store: Store, first: date, last: date) -> Iterator[dict[str, str]]:
    """Yield the rows of a period, picked from the charges of the whole ledger."""
    bills, account = Ledger(store.ledger.entries()).bills, store.settings.controller_id()
    for job in sorted(store.jobs.all(), key=lambda job: job.id):
        instances = store.instances.of_job(job.id, include_ended=True)
        counts, lost = store.time_uses.of_job(job.id), store.time_uses.lost_work(job.id)
        records = time_records(job, instances, counts, NOW)
        splits = charge_splits(job.id, bills, records, lost, NOW)
        within = (split for split in splits if first <= split.charge.day <= last)
        focus_job = FocusJob(job.id, OWNER, job.spec.team, job.spec.study)
        yield from focus_rows(within, focus_job, {}, account)


def export_of(store: Store) -> FocusExport:
    return FocusExport(store, ControllerStatus(), StoredCosts(store))


def exported(export: FocusExport, first: date, last: date) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(export.csv(first, last, NOW)))))


def test_rows_of_each_period_equal_those_of_the_whole_ledger(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(focus_export, "_JOBS_AT_ONCE", 3)
    monkeypatch.setattr(focus_export, "_ROWS_AT_ONCE", 2)
    export, total_usd = export_of(store), Decimal(0)
    for begin in range(-1, 14):
        for days in (1, 3):
            first, last = (FIRST + timedelta(days=day) for day in (begin, begin + days - 1))
            rows = exported(export, first, last)
            assert rows == list(rows_of_all(store, first, last))
            total_usd += sum(Decimal(row["BilledCost"]) for row in rows) if days == 1 else 0
    assert total_usd == Ledger(store.ledger.entries()).total(NOW)


def test_only_bills_of_the_period_are_read(store: Store) -> None:
    export, day = export_of(store), FIRST + timedelta(days=3)
    exported(export, day, day)  # adds the ledger up once
    charges = Ledger(store.ledger.entries()).charges(NOW)
    with read_lines() as lines:
        rows = exported(export, day, day)
    paid: set[Charge] = {charge for charge in charges if charge.day == day}
    instances = {charge.instance for charge in paid}
    assert {row["ResourceId"] for row in rows} == instances
    assert {line.instance for line in lines} == instances
    assert len(instances) < len(store.jobs.all()) / 2


def test_a_period_of_more_jobs_takes_no_more_statements(store: Store) -> None:
    export = export_of(store)
    exported(export, FIRST, FIRST)
    sent = []
    for last in (FIRST, FIRST + timedelta(days=12)):
        with counted() as statements:
            exported(export, FIRST, last)
        sent.append(len(statements))
    assert sent[0] == sent[1]


def test_rows_come_some_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus_export, "_JOBS_AT_ONCE", 1)
    monkeypatch.setattr(focus_export, "_ROWS_AT_ONCE", 1)
    export, last = export_of(store), FIRST + timedelta(days=12)
    parts = export.csv(FIRST, last, NOW)
    next(parts)
    with read_lines() as lines:
        next(parts)
    assert len({line.job for line in lines}) <= 1
