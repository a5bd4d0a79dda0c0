"""Output of `castor costs`: all costs, the receipt of a job, and the file for FOCUS."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.output import print_json
from autoscaler.cli.tables import costs_table, money, number, words_table
from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.domain.time_use import CostCategory
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.client import Client
from autoscaler.wire.cost_messages import (
    AlternativeView,
    CostSplitView,
    CounterfactualView,
    ReceiptView,
    RunsTotalView,
)
from autoscaler.wire.messages import CostView

_DEFAULT_DAYS: Final = 30
_SIMULATED: Final = (
    "Simulated lines come from the job's fitted model and the recorded prices. Nothing in them "
    "was billed. Castor's own rule is simulated, too: how far it is from the bill shows how far "
    "the other lines can be trusted."
)
_MEANINGS: Final = {
    CostCategory.USEFUL: "training that counts",
    CostCategory.BOOT: "from launch to the first step",
    CostCategory.IDLE: "held without work",
    CostCategory.PAUSE: "resizes and checkpoints",
    CostCategory.LOST: "work done again, and recovery",
    CostCategory.TRANSFER: "files between networks",
    CostCategory.UNKNOWN: "no agent reported this time",
}


def print_costs(client: Client, as_json: bool) -> None:
    """Print the dollars spent, by job, by offer and by day."""
    view = client.costs()
    if as_json:
        print_json(CostView, view)
    else:
        print_whole(costs_table(view))


def print_receipt(client: Client, job: str, as_json: bool) -> None:
    """Print the receipt of a job."""
    view = client.receipt(job)
    if as_json:
        print_json(ReceiptView, view)
    else:
        print_whole(receipt_text(view))


def receipt_text(view: ReceiptView) -> RenderableType:
    """Return a receipt as a table, with a line for each offer if there are several."""
    lines: list[RenderableType] = [_split_table(view.whole), Text()]
    if len(view.by_offer) > 1:
        lines += [_offers_table(view), Text()]
    lines += [Text(line) for line in _remarks(view)]
    if view.all_runs is not None:
        lines += [Text(), *_runs_lines(view.all_runs)]
    return Group(*lines)


def _runs_lines(total: RunsTotalView) -> list[RenderableType]:
    """Return the sums over a job and the runs that it goes on from."""
    title = Text(f"all {total.runs} runs: this one, and those that it goes on from", style="bold")
    remarks = _split_remarks(total.whole, total.useful_examples, "")
    return [title, _split_table(total.whole), Text(), *map(Text, remarks)]


def _split_table(split: CostSplitView) -> Table:
    right = ("spent", "share", "billed time")
    table = words_table("part", *right, "for", wraps=("for",), right=right)
    for part in split.parts:
        has_time = part.category is not CostCategory.TRANSFER
        time = format_duration(part.seconds) if has_time else ""
        cells = (part.category.value, money(part.usd), f"{part.share:.1%}", time)
        style = "yellow" if part.category is CostCategory.UNKNOWN else None
        table.add_row(*cells, _MEANINGS[part.category], style=style)
    total = ("total", money(split.usd), "", format_duration(split.billed_seconds))
    table.add_row(*total, "", style="bold")
    return table


def _offers_table(view: ReceiptView) -> Table:
    """Return a table of the offers, with the share of each category in the offer's cost."""
    categories = [part.category for part in view.whole.parts]
    right = ("spent", *(category.value for category in categories))
    table = words_table("offer", *right, right=right)
    for offer, split in view.by_offer.items():
        shares = {part.category: part.share for part in split.parts}
        cells = (f"{shares.get(category, 0.0):.0%}" for category in categories)
        table.add_row(offer, money(split.usd), *cells)
    return table


def _remarks(view: ReceiptView) -> list[str]:
    """Return what the figures do not say by themselves."""
    state = "" if view.is_final else " so far"
    lines = _split_remarks(view.whole, view.useful_examples, state)
    if view.lost_steps:
        lines.append(f"{view.lost_steps} steps were made twice, after a failure")
    if any(part.category is CostCategory.UNKNOWN for part in view.whole.parts):
        lines.append("unknown: no agent has reported the use of this time (docs/receipt.md)")
    return lines


def _split_remarks(split: CostSplitView, useful_examples: float | None, state: str) -> list[str]:
    """Return the productive share of a split, and the cost of its progress."""
    share, lines = split.productive_share, []
    if share is not None:
        lines.append(f"{share:.1%} of the billed time was productive{state}")
    if useful_examples and split.usd:
        per_million = float(split.usd) / useful_examples * 1e6
        lines.append(f"${number(per_million)} per million useful examples")
    return lines


def require_job(counterfactual: bool) -> None:
    """Check that no option for one job is given without a job.

    Raises:
        SpecError: one is.
    """
    if counterfactual:
        raise SpecError("is for one job: castor costs JOB --counterfactual", "--counterfactual")


def print_counterfactual(client: Client, job: str, as_json: bool) -> None:
    """Print what a job cost, and what other rules would have paid."""
    view = client.counterfactual(job)
    if as_json:
        print_json(CounterfactualView, view)
    else:
        print_whole(counterfactual_text(view))


def counterfactual_text(view: CounterfactualView) -> RenderableType:
    """Return a counterfactual bill as a table; billed and simulated figures look different."""
    right = ("cost", "5 % to 95 %", "time", "time, 5 % to 95 %")
    table = words_table("rule", *right, "source", wraps=("source",), right=right)
    billed = (money(view.billed_usd), "", format_duration(view.billed_seconds), "", "billed")
    table.add_row("this run", *billed, style="bold")
    for alternative in view.alternatives:
        table.add_row(alternative.title or alternative.name, *_alternative_cells(alternative))
    replayed = f"{view.moments} decisions replayed"
    if view.lost:
        replayed += f"; {view.lost} more have no recorded state any more"
    return Group(
        table,
        Text(),
        Text(f"for the same {number(view.examples)} useful examples; {replayed}"),
        Text(_SIMULATED, style="dim"),
    )


def _alternative_cells(alternative: AlternativeView) -> tuple[str, ...]:
    if alternative.usd is None or alternative.seconds is None:
        return "-", "", "-", "", alternative.problem or ""
    usd, seconds = alternative.usd, alternative.seconds
    times = (format_duration(seconds.low), format_duration(seconds.high))
    return (
        f"~${number(usd.median)}",
        f"${number(usd.low)} to ${number(usd.high)}",
        f"~{format_duration(seconds.median)}",
        " to ".join(times),
        f"simulated, {alternative.allocation}" if alternative.allocation else "simulated",
    )


def require_no_days(first: str | None, last: str | None) -> None:
    """Check that no day is given without `--focus`.

    Raises:
        SpecError: one is.
    """
    if first is not None or last is not None:
        option = "--first" if first is not None else "--last"
        raise SpecError("is for --focus only: name a file with --focus FILE", option)


def export_focus(
    connect: Callable[[], Client],
    job: str | None,
    file: Path,
    days: tuple[str | None, str | None],
    now_seconds: float,
) -> None:
    """Write the charges of all jobs in a period to a CSV file.

    Raises:
        SpecError: a job is named, a day can't be used, or the file can't be written.
    """
    if job is not None:
        raise SpecError(f"{quoted(job)} can't be exported alone: leave out the job", "--focus")
    today = datetime.fromtimestamp(now_seconds, UTC).date()
    last = today if days[1] is None else _day(days[1], "--last")
    first = (
        last - timedelta(days=_DEFAULT_DAYS - 1) if days[0] is None else _day(days[0], "--first")
    )
    if first > last:
        raise SpecError(f"{first} is after the last day, {last}", "--first")
    try:
        connect().download_focus(first, last, file)
    except OSError as error:
        raise SpecError(f"{file} can't be written: {error.strerror}", "--focus") from None
    print(f"{file}: costs from {first} to {last} (UTC), in FOCUS 1.2")


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{quoted(text)} is no day: write it as 2026-11-01", option) from None
