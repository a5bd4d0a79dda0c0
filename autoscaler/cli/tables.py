"""Tables and lines of text for jobs, decisions and costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from autoscaler.cli.output import print_json
from autoscaler.domain.activity import STALL
from autoscaler.domain.alarm import ModelAlarm
from autoscaler.domain.gang import GANG_GIVEN_BACK
from autoscaler.domain.instance import OTHER_ZONE, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.report import CONSEQUENCE
from autoscaler.domain.trial import TrialEnding
from autoscaler.goodput.draws import is_usable
from autoscaler.spec.objective_text import describe_objective
from autoscaler.spec.quantities import format_duration, format_priority
from autoscaler.wire.messages import (
    CostView,
    DecisionView,
    ForecastView,
    InstanceView,
    JobView,
)

_PHASE_STYLE = {
    JobPhase.PENDING: "yellow",
    JobPhase.RUNNING: "green",
    JobPhase.STOPPING: "yellow",
    JobPhase.FINISHED: "bold green",
    JobPhase.FAILED: "bold red",
    JobPhase.STOPPED: "dim",
}


_UNLIMITED_COLUMNS = 10_000
_GAP = 2
_READABLE_COLUMNS, _LONG_WORD = 16, 24  # of a column that wraps

_REMARKS = (OTHER_ZONE, GANG_GIVEN_BACK, CONSEQUENCE, STALL)


def number(value: float | None) -> str:
    """Return a number with 3 significant digits; a dash for None."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """Return a fraction in percent; a dash for None."""
    return "-" if value is None else f"{value:.0%}"


def money(usd: Decimal | float) -> str:
    """Return US dollars as text, with 4 decimals below one dollar and 2 otherwise."""
    return f"${amount(usd)}"


def amount(usd: Decimal | float) -> str:
    """Return US dollars as `money` does, without the sign, for columns in dollars."""
    return f"{usd:,.4f}" if -1 < usd < 1 else f"{usd:,.2f}"


def counted(count: int, singular: str) -> str:
    """Return a count with a noun, such as ``1 file`` or ``2 files``."""
    return f"{count} {singular}" if count == 1 else f"{count} {singular}s"


class WordsTable(Table):
    """Table whose rows become lists of headings and values where the console is too narrow."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table if no value that may not wrap is cut off, else a list for each row."""
        if not self.rows or self._needed_columns(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        lists = Table.grid(padding=(0, 2, 0, 0))
        lists.add_column(overflow="fold", max_width=_LONG_WORD, style="dim")
        lists.add_column(overflow="fold")
        headings = [str(column.header).replace("\n", " ") for column in self.columns]
        for number_of_row, cells in enumerate(zip(*(c.cells for c in self.columns), strict=True)):
            if number_of_row:
                lists.add_row()
            for heading, cell in zip(headings, cells, strict=True):
                if str(cell):
                    lists.add_row(heading, cell, style=self.rows[number_of_row].style)
        yield lists

    def _needed_columns(self, console: Console, options: ConsoleOptions) -> int:
        """Return the characters without which values are cut off, or wrap within each word."""
        unlimited = options.update(max_width=_UNLIMITED_COLUMNS)
        needed = 0
        for column in self.columns:
            cells = [Measurement.get(console, unlimited, cell) for cell in column.cells]
            headings = Measurement.get(console, unlimited, column.header)
            longest = max((cell.maximum for cell in cells), default=0)
            heading = headings.maximum if column.no_wrap else headings.minimum
            if not column.no_wrap:
                word = max((cell.minimum for cell in cells), default=0)
                longest = min(longest, max(min(word, _LONG_WORD), _READABLE_COLUMNS))
            needed += max(longest, heading) + _GAP
        return needed - _GAP


def words_table(
    *columns: str, wraps: Collection[str] = (), right: Collection[str] = ()
) -> WordsTable:
    """Return an empty table in which only the columns `wraps` may wrap.

    The columns `right` are right-aligned. Headings may have several lines.
    """
    table = WordsTable(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for heading in columns:
        justify: JustifyMethod = "right" if heading in right else "left"
        table.add_column(
            heading, justify=justify, vertical="top", no_wrap=heading not in wraps, overflow="fold"
        )
    return table


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Return whether a table fits the width of the console without wrapping."""
    unlimited = options.update(max_width=_UNLIMITED_COLUMNS)
    return Measurement.get(console, unlimited, table).maximum <= options.max_width


class JobsTable:
    """Table with a row for each job, and as many columns as fit the console."""

    _RIGHT_ALIGNED = frozenset({"goodput", "progress", "left", "$/h", "spent"})
    # Columns to drop where space is short, in this order.
    _OPTIONAL = ("weight", "noise scale", "batch", "goodput", "objective", "$/h", "left")

    def __init__(self, jobs: Sequence[JobView], now_seconds: float) -> None:
        self._rows = [_job_cells(job, now_seconds) for job in jobs]
        if any(job.weight != 1.0 for job in jobs):
            for row, job in zip(self._rows, jobs, strict=True):
                row["weight"] = number(job.weight)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the widest table that fits the console; if none does, instances wrap."""
        for count in range(len(self._OPTIONAL) + 1):
            table = self._table(self._OPTIONAL[:count])
            if fits(table, console, options):
                yield table
                return
        yield self._table(self._OPTIONAL, wraps=("instances",))

    def _table(self, dropped: Sequence[str], wraps: Collection[str] = ()) -> Table:
        headings = [heading for heading in self._rows[0] if heading not in dropped]
        table = words_table(*headings, wraps=wraps, right=self._RIGHT_ALIGNED)
        for row in self._rows:
            table.add_row(*(row[heading] for heading in headings))
        return table


def _job_cells(job: JobView, now_seconds: float) -> dict[str, str | Text]:
    report = job.report
    noise = report.noise if report else None
    goodput = job.goodput_measured
    return {
        "job": job.id,
        "phase": Text(job_phase(job), style="yellow" if job.waits else _PHASE_STYLE[job.phase]),
        "instances": instances_text(job),
        "batch": str(report.batch.total) if report else "-",
        "noise scale": number(noise.examples) if noise and is_usable(noise) else "-",
        "goodput": f"{number(goodput)} ex/s" if goodput else "-",
        "progress": progress_text(job),
        "left": format_duration(job.eta_seconds) if job.eta_seconds is not None else "-",
        "$/h": amount(job.usd_per_hour),
        "spent": money(job.spent_usd),
        "objective": objective_text(job, now_seconds),
    }


def job_phase(job: JobView) -> str:
    """Return the phase of a job: `pruned` if its study pruned it, `waiting` without instances."""
    return TrialEnding.PRUNED if job.trial_ending is TrialEnding.PRUNED else job.phase_text


def weight_text(job: JobView) -> str:
    """Return a job's weight against other jobs, with its priority and its owner's share."""
    has_share = job.person is not None and job.weight != job.priority
    owner_share = f", {job.person}'s share" if has_share else ""
    return f"{number(job.weight)}   priority {format_priority(job.priority)}{owner_share}"


def objective_text(job: JobView, now_seconds: float) -> str:
    """Return a job's objective in words; times left count from now, or from the job's end."""
    return describe_objective(job.objective, job.ended_seconds or now_seconds)


def instances_text(job: JobView) -> str:
    """Return a job's instances by offer, with the phases of instances that do not train."""
    parts = []
    for offer in sorted({instance.offer for instance in job.instances}):
        instances = [instance for instance in job.instances if instance.offer == offer]
        phases = [instance.phase for instance in instances]
        not_training = sorted({phase_words(phase, job) for phase in phases if phase != "training"})
        suffix = f" ({', '.join(not_training)})" if not_training else ""
        parts.append(f"{len(phases)} x {offer}{_gangs_text(instances)}{suffix}")
    return ", ".join(parts) or "-"


def _gangs_text(instances: Sequence[InstanceView]) -> str:
    """Return the number of gangs of a job's instances, as the rest of a phrase; empty for none."""
    gangs = {view.gang.partition(",")[0] for view in instances if view.gang is not None}
    if not gangs:
        return ""
    return " in 1 gang" if len(gangs) == 1 else f" in {len(gangs)} gangs"


def phase_words(phase: InstancePhase, job: JobView) -> str:
    """Return the phase of an instance; `running, no session` for a script without a session."""
    if job.is_sessionless and phase is InstancePhase.STARTING:
        return "running, no session"
    return phase


def progress_text(job: JobView) -> str:
    """Return progress in percent of useful examples; a dash if the total is unknown."""
    report = job.report
    if job.is_sessionless:
        return "unknown"
    if report is None or not report.total_examples:
        return "-"
    return f"{min(report.progress_examples / report.total_examples, 1):.0%}"


def clock_time(seconds: float) -> str:
    """Return the time of day in the local time zone, as ``HH:MM:SS``."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


def utc_minute(seconds: float) -> str:
    """Return a time in UTC, as ``YYYY-MM-DD HH:MM``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def checkpoint_words(job: JobView) -> str:
    """Return words for the directory of a job's checkpoints, based on its last report.

    The final checkpoint may be saved after the last report.
    """
    if job.report is not None and job.report.checkpoint.step is not None:
        return f"checkpoints are in {job.checkpoint_directory}"
    if job.phase.is_final:
        return f"checkpoints, if any were saved, are in {job.checkpoint_directory}"
    return f"no checkpoint is reported yet; the directory is {job.checkpoint_directory}"


def rest_of_logs(job: JobView) -> str:
    """Return a hint at the command that prints the whole log of a job."""
    return f"castor logs {job.id} prints the whole log"


def alarm_text(alarm: ModelAlarm, now_seconds: float) -> str:
    """Return an alarm in words, with the time since it began."""
    lasted = format_duration(max(now_seconds - alarm.since_seconds, 0.0))
    return f"alarm for {lasted}: {alarm.text}"


def print_decisions(decisions: Sequence[DecisionView], of: str, as_json: bool) -> None:
    """Print decisions in order of time, or as JSON in the given order.

    Args:
        decisions: decisions, the latest first.
        of: name of the job or trial, for the message that there are none.
        as_json: print JSON.
    """
    if as_json:
        print_json(tuple[DecisionView, ...], decisions)
        return
    for decision in reversed(decisions):
        print(f"{clock_time(decision.at_seconds)}  {decision.reason}")
    if not decisions:
        print(f"no decision for {of} yet")


def print_remarks(job: JobView, now_seconds: float) -> None:
    """Print remarks on a job, which explain what its decisions alone do not.

    They are other zones than planned, gangs given back, what follows from failures, stalls, a
    missing session, memory and its alarm.
    """
    for event in job.events:
        if event.kind in _REMARKS:
            print(event.text)
    if job.is_sessionless:
        print(f"{job.id}: {job.cause}")
    if job.report is not None:
        for text in job.report.bounds.memory_messages:
            print(f"{job.id}: {text}")
    if job.alarm is not None:
        print(alarm_text(job.alarm, now_seconds))


def forecast_table(job: JobView, forecast: Sequence[ForecastView]) -> Table:
    """Return a table of a job's actual time and cost, and its predictions for fixed sizes."""
    table = Table(box=None, header_style="bold")
    table.add_column(job.id)
    for heading in ("time", "at 90 %", "cost", "at 90 %"):
        table.add_column(heading, justify="right")
    table.add_column("")
    took_seconds = (job.ended_seconds or job.submitted_seconds) - job.submitted_seconds
    cells = ("elastic", format_duration(took_seconds), "", money(job.spent_usd), "", "actual")
    table.add_row(*cells, style="bold")
    for row in forecast:
        table.add_row(
            f"{row.allocation} fixed",
            format_duration(row.seconds),
            format_duration(row.seconds_90),
            money(row.usd),
            money(row.usd_90),
            "predicted" if row.measured else "predicted, size not measured",
        )
    return table


def costs_table(costs: CostView) -> Table:
    """Return a table of spending by job, offer and day.

    It has rows for months, users and teams if there are several, and a column for transfer costs
    if there are any.
    """
    sent = costs.transfer
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("spent", justify="right")
    if sent is not None:
        table.add_column("of which transfer", justify="right")
    for title, parts, sent_parts in (
        ("job", costs.by_job, sent.by_job if sent else {}),
        ("offer", costs.by_offer, sent.by_offer if sent else {}),
        ("day", costs.by_day, sent.by_day if sent else {}),
        ("month", costs.by_month if len(costs.by_month) > 1 else {}, {}),
        ("person", costs.by_person if len(costs.by_person) > 1 else {}, {}),
        ("team", costs.by_team if len(costs.by_team) > 1 else {}, {}),
    ):
        for name, usd in sorted(parts.items()):
            is_paid = title == "offer" and name in costs.paid_already
            cells = [f"{title} {name}", "paid already" if is_paid and not usd else money(usd)]
            if name in sent_parts:
                cells.append(money(sent_parts[name]))
            table.add_row(*cells)
    totals = [costs.total_usd] if sent is None else [costs.total_usd, sent.total_usd]
    table.add_row("total", *map(money, totals), style="bold")
    table.add_row("now, per hour", money(costs.usd_per_hour))
    return table
