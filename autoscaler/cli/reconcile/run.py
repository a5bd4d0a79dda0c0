"""Comparison of the ledger with a cloud's bill: fetched, computed and printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.output import print_json
from autoscaler.cli.tables import money, words_table
from autoscaler.domain.errors import ProviderError, SpecError, Unavailable
from autoscaler.ledger.reconciliation import (
    SETTLED_AFTER_HOURS,
    TOLERANCE_TEXT,
    Comparison,
    Reconciliation,
    ReconciliationResult,
    reconcile,
)
from autoscaler.wire.client import Client
from autoscaler.wire.cost_messages import BillComparison, BilledDay
from providers.bill import Account, BillWords

_DEFAULT_DAYS: Final = 14
_HEADINGS: Final = (
    *("day", "instances, $\nledger", "\naccount", "\ndiffers"),
    *("extras, $\nledger", "\naccount", "beside, $\naccount", ""),
)
_ADVICE: Final = {
    ReconciliationResult.AGREE: "Instances agree within {tolerated}.",
    ReconciliationResult.NOTHING_SETTLED: (
        "No settled day has costs, in the ledger or in the account."
    ),
    ReconciliationResult.ACCOUNT_HAS_NOTHING: "The account has no cost with {tag}: {nothing}",
    ReconciliationResult.ACCOUNT_HAS_MORE: (
        "The account has more ({difference}). Look for instances with {tag} that castor status "
        "does not list (orphans, or instances of another controller), and check agreed prices."
    ),
    ReconciliationResult.LEDGER_HAS_MORE: (
        "The ledger has more ({difference}). Look for instances without {tag}, agreed prices that "
        "the file of castor serve --fleet lacks, {less}"
    ),
}


@dataclass(frozen=True, slots=True)
class Period:
    """Range of UTC days, with both ends included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class ReconciliationReport:
    """Result of comparing ledger and bill.

    Attributes:
        deployment: name of the deployment.
        reconciliation: the comparison, day by day.
        asked_usd: cost of the query for the bill, in US dollars.
        words: wording for the account's cloud.
    """

    deployment: str
    reconciliation: Reconciliation
    asked_usd: Decimal
    words: BillWords


def parse_period(first: str | None, last: str | None, now_seconds: float) -> Period:
    """Return the days to compare; default: the 14 days up to yesterday.

    Raises:
        SpecError: a day is malformed, the days are out of order, or the last has not begun.
    """
    today = datetime.fromtimestamp(now_seconds, UTC).date()
    to = today - timedelta(days=1) if last is None else _parse_day(last, "--to")
    since = (
        to - timedelta(days=_DEFAULT_DAYS - 1) if first is None else _parse_day(first, "--from")
    )
    if to > today:
        raise SpecError(f"{to} has not begun: it is {today} (UTC)", "--to")
    if since > to:
        raise SpecError(f"{since} is after the last day, {to}", "--from")
    return Period(since, to)


def reconcile_with(
    account: Account, client: Client, deployment: str, period: Period, now_seconds: float
) -> ReconciliationReport:
    """Compare the controller's ledger with the bill of an account.

    The ledger is read first, because a query for the bill may cost money.

    Raises:
        ProviderError: the cloud refuses the query or does not answer.
    """
    daily_costs = client.daily_costs(period.first, period.last)
    try:
        bill = account.open_bill()
        billed = bill.costs(deployment, period.first, period.last)
    except Unavailable as error:  # a command reports this type as "no controller answers"
        raise ProviderError(str(error)) from error
    ledger = [cost for cost in daily_costs if account.has(cost.offer)]
    reconciliation = reconcile(ledger, billed, now_seconds)
    return ReconciliationReport(deployment, reconciliation, bill.asked_usd, account.words)


def keep_report(report: ReconciliationReport, client: Client, provider: str) -> None:
    """Keep a comparison on the controller, if it has any day.

    Raises:
        Forbidden: the requester is no operator.
    """
    days = tuple(
        BilledDay(
            day.day,
            day.instances.ledger_usd,
            day.instances.account_usd,
            day.beside_usd,
            day.is_settled,
            day.is_estimated,
        )
        for day in report.reconciliation.days
    )
    if days:
        client.keep_bill(provider, BillComparison(report.words.cloud, report.deployment, days))


def print_report(report: ReconciliationReport, as_json: bool) -> None:
    """Print the comparison as a table, or as JSON."""
    if as_json:
        print_json(Reconciliation, report.reconciliation)
    else:
        print_whole(reconciliation_table(report))


def reconciliation_table(report: ReconciliationReport) -> RenderableType:
    """Return a table with a row for each day and their sum, notes and advice."""
    query_cost = Text(report.words.asked.format(usd=money(report.asked_usd)), style="dim")
    table = _table(report.reconciliation)
    return Group(table, *map(Text, _notes(report)), _advice(report), query_cost)


def _table(reconciliation: Reconciliation) -> Table:
    table = words_table(*_HEADINGS, right=_HEADINGS[1:-1])
    for day in reconciliation.days:
        cells = _cells(day.instances, day.extras, day.beside_usd)
        remark, style = ("", None) if day.is_settled else ("open", "dim")
        table.add_row(day.day.isoformat(), *cells, remark, style=style)
    beside_usd = sum(reconciliation.beside_usd.values(), Decimal(0))
    table.add_row(
        "settled",
        *_cells(reconciliation.instances, reconciliation.extras, beside_usd),
        "",
        style="bold",
    )
    return table


def _cells(instances: Comparison, extras: Comparison, beside_usd: Decimal) -> Iterator[str]:
    yield f"{instances.ledger_usd:,.2f}"
    yield f"{instances.account_usd:,.2f}"
    yield "-" if instances.share is None else f"{instances.share:+.1%}"
    for usd in (extras.ledger_usd, extras.account_usd, beside_usd):
        yield f"{usd:,.2f}"


def _notes(report: ReconciliationReport) -> Iterator[str]:
    reconciliation, words = report.reconciliation, report.words
    yield f"Extras are {words.extras}; beside are costs that the ledger does not track."
    if reconciliation.beside_usd:
        parts = ", ".join(
            f"{name} {money(usd)}" for name, usd in reconciliation.beside_usd.items()
        )
        yield f"Beside: {parts}."
    if reconciliation.transfer_usd:
        sent = money(reconciliation.transfer_usd)
        yield f"The ledger has {sent} for transfers of jobs' files; the bill has them in beside."
    if not all(day.is_settled for day in reconciliation.days):
        yield f"Open days ended less than {SETTLED_AFTER_HOURS} hours ago, and are in no sum."
    estimated = [day.day for day in reconciliation.days if day.is_settled and day.is_estimated]
    if estimated:
        since = min(estimated)
        yield f"{words.cloud} calls its figures from {since} on estimates; they may change."


def _advice(report: ReconciliationReport) -> Text:
    instances, verdict = report.reconciliation.instances, report.reconciliation.verdict
    sign = "-" if instances.difference_usd < 0 else "+"
    style = {
        ReconciliationResult.AGREE: "green",
        ReconciliationResult.NOTHING_SETTLED: "yellow",
    }.get(verdict, "red")
    words = _ADVICE[verdict].format(
        tag=report.words.tag.format(deployment=report.deployment),
        nothing=report.words.nothing,
        less=report.words.less,
        difference=f"{sign}{money(abs(instances.difference_usd))}",
        tolerated=TOLERANCE_TEXT,
    )
    return Text(words, style=style)


def _parse_day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{text!r} is not a date: write it as 2026-11-01", option) from None
