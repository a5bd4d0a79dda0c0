"""The ledger beside the cloud's own bill: fetched, compared, and as people see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.bills import Account, BillWords
from autoscaler.cli.live import print_whole
from autoscaler.cli.output import print_json
from autoscaler.cli.tables import money, words_table
from autoscaler.domain.errors import ProviderError, SpecError, Unavailable
from autoscaler.ledger.reconciliation import (
    SETTLED_AFTER_HOURS,
    TOLERATED_SHARE,
    Comparison,
    Reconciliation,
    Verdict,
    reconcile,
)
from autoscaler.wire.client import Client

_USUAL_DAYS: Final = 14
_HEADINGS: Final = (
    *("day", "instances, $\nledger", "\naccount", "\ndiffers"),
    *("extras, $\nledger", "\naccount", "beside, $\naccount", ""),
)
_ADVICE: Final = {
    Verdict.AGREE: "Instances agree within {tolerated}.",
    Verdict.NOTHING_SETTLED: "No settled day has costs, in the ledger or in the account.",
    Verdict.ACCOUNT_HAS_NOTHING: "The account knows no cost with {tag}: {nothing}",
    Verdict.ACCOUNT_HAS_MORE: (
        "The account has more ({difference}): look for instances with {tag} that castor status "
        "does not show (a leak, or another controller's), and at prices that were agreed on."
    ),
    Verdict.LEDGER_HAS_MORE: (
        "The ledger has more ({difference}): look for instances without {tag}, agreed prices that "
        "castor serve --fleet does not know, {less}"
    ),
}


@dataclass(frozen=True, slots=True)
class Period:
    """Days (UTC), the last one included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class Report:
    """What came of asking both, what it cost to ask, and how the account's cloud speaks of it."""

    deployment: str
    reconciliation: Reconciliation
    asked_usd: Decimal
    words: BillWords


def parse_period(first: str | None, last: str | None, now_seconds: float) -> Period:
    """The days that are asked for; by default two weeks to yesterday.

    Raises:
        SpecError: one is no day, or they are not in order, or have not begun.
    """
    today = datetime.fromtimestamp(now_seconds, UTC).date()
    to = today - timedelta(days=1) if last is None else _day(last, "--to")
    since = to - timedelta(days=_USUAL_DAYS - 1) if first is None else _day(first, "--from")
    if to > today:
        raise SpecError(f"{to} has not begun: it is {today} (UTC)", "--to")
    if since > to:
        raise SpecError(f"{since} comes after the last day, {to}", "--from")
    return Period(since, to)


def reconcile_with(
    account: Account, client: Client, deployment: str, period: Period, now_seconds: float
) -> Report:
    """The controller's ledger beside the bill of an account.

    Raises:
        ProviderError: its cloud does not tell; the ledger is asked first, for that costs nothing.
    """
    own = client.daily_costs(period.first, period.last)
    try:
        bill = account.open_bill()
        billed = bill.costs(deployment, period.first, period.last)
    except Unavailable as error:  # which for a command means that its controller is away
        raise ProviderError(str(error)) from error
    ledger = [cost for cost in own if account.has(cost.offer)]
    found = reconcile(ledger, billed, now_seconds)
    return Report(deployment, found, bill.asked_usd, account.words)


def print_report(report: Report, as_json: bool) -> None:
    """Print the comparison: for people, or as JSON."""
    if as_json:
        print_json(Reconciliation, report.reconciliation)
    else:
        print_whole(reconciliation_table(report))


def reconciliation_table(report: Report) -> RenderableType:
    """One row a day, what they come to, and what to look at."""
    asked = Text(report.words.asked.format(usd=money(report.asked_usd)), style="dim")
    table = _table(report.reconciliation)
    return Group(table, *map(Text, _notes(report)), _advice(report), asked)


def _table(found: Reconciliation) -> Table:
    table = words_table(*_HEADINGS, right=_HEADINGS[1:-1])
    for day in found.days:
        cells = _cells(day.instances, day.extras, day.beside_usd)
        remark, style = ("", None) if day.is_settled else ("open", "dim")
        table.add_row(day.day.isoformat(), *cells, remark, style=style)
    beside_usd = sum(found.beside_usd.values(), Decimal(0))
    table.add_row("settled", *_cells(found.instances, found.extras, beside_usd), "", style="bold")
    return table


def _cells(instances: Comparison, extras: Comparison, beside_usd: Decimal) -> Iterator[str]:
    yield f"{instances.ledger_usd:,.2f}"
    yield f"{instances.account_usd:,.2f}"
    yield "-" if instances.share is None else f"{instances.share:+.1%}"
    for usd in (extras.ledger_usd, extras.account_usd, beside_usd):
        yield f"{usd:,.2f}"


def _notes(report: Report) -> Iterator[str]:
    found, words = report.reconciliation, report.words
    yield f"Extras are {words.extras}; beside is what the ledger does not know."
    if found.beside_usd:
        parts = ", ".join(f"{name} {money(usd)}" for name, usd in found.beside_usd.items())
        yield f"Beside: {parts}."
    if found.transfer_usd:
        sent = money(found.transfer_usd)
        yield f"Of transfer the ledger has {sent}, for jobs' files on their way."
    if not all(day.is_settled for day in found.days):
        yield f"Open days ended less than {SETTLED_AFTER_HOURS} hours ago, and are in no sum."
    estimated = [day.day for day in found.days if day.is_settled and day.is_estimated]
    if estimated:
        since = min(estimated)
        yield f"{words.cloud} calls its figures from {since} on estimates, which may still move."


def _advice(report: Report) -> Text:
    instances, verdict = report.reconciliation.instances, report.reconciliation.verdict
    sign = "-" if instances.difference_usd < 0 else "+"
    style = {Verdict.AGREE: "green", Verdict.NOTHING_SETTLED: "yellow"}.get(verdict, "red")
    words = _ADVICE[verdict].format(
        tag=report.words.tag.format(deployment=report.deployment),
        nothing=report.words.nothing,
        less=report.words.less,
        difference=f"{sign}{money(abs(instances.difference_usd))}",
        tolerated=f"{TOLERATED_SHARE:.0%}",
    )
    return Text(words, style=style)


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{text!r} is no day: write it like 2026-11-01", option) from None
