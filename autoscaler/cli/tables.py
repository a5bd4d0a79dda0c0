"""What people see of jobs, decisions and costs, as Rich tables and lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from autoscaler.cli.output import print_json
from autoscaler.domain.alarm import ModelAlarm
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.trial import TrialEnding
from autoscaler.goodput.draws import is_usable
from autoscaler.spec.objective_text import describe_objective
from autoscaler.spec.quantities import format_duration, format_priority
from autoscaler.wire.messages import CostView, DecisionView, ForecastView, JobView

_PHASE_STYLE = {
    JobPhase.PENDING: "yellow",
    JobPhase.RUNNING: "green",
    JobPhase.STOPPING: "yellow",
    JobPhase.FINISHED: "bold green",
    JobPhase.FAILED: "bold red",
    JobPhase.STOPPED: "dim",
}


_UNLIMITED_COLUMNS = 10_000


def number(value: float | None) -> str:
    """Three significant digits, or a dash."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """A share in percent, or a dash."""
    return "-" if value is None else f"{value:.0%}"


def money(usd: Decimal | float) -> str:
    """Dollars; small amounts to the hundredth of a cent."""
    return f"${usd:,.4f}" if -1 < usd < 1 else f"${usd:,.2f}"


def counted(count: int, what: str) -> str:
    """So many of them, by the word for one."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def words_table(*columns: str, wraps: Collection[str] = (), right: Collection[str] = ()) -> Table:
    """A table of which the columns `wraps` give way where there is little room, the others never.

    Headings may have lines.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in columns:
        justify: JustifyMethod = "right" if heading in right else "left"
        table.add_column(
            heading, justify=justify, vertical="top", no_wrap=heading not in wraps, overflow="fold"
        )
    return table


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether all of it can be seen."""
    unlimited = options.update(max_width=_UNLIMITED_COLUMNS)
    return Measurement.get(console, unlimited, table).maximum <= options.max_width


class JobsTable:
    """One row a job, with as many columns as there is room for."""

    _RIGHT = frozenset({"goodput", "progress", "left", "$/h", "spent"})
    _LEFT_OUT_FIRST = ("weight", "noise scale", "batch", "goodput", "objective", "$/h", "left")

    def __init__(self, jobs: Sequence[JobView], now_seconds: float) -> None:
        self._rows = [_job_cells(job, now_seconds) for job in jobs]
        if any(job.weight != 1.0 for job in jobs):
            for row, job in zip(self._rows, jobs, strict=True):
                row["weight"] = number(job.weight)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The widest table that fits."""
        for count in range(len(self._LEFT_OUT_FIRST) + 1):
            table = self._table(self._LEFT_OUT_FIRST[:count])
            if fits(table, console, options):
                break
        yield table

    def _table(self, left_out: Sequence[str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        headings = [heading for heading in self._rows[0] if heading not in left_out]
        for heading in headings:
            justify: JustifyMethod = "right" if heading in self._RIGHT else "left"
            table.add_column(heading, justify=justify, no_wrap=True)
        for row in self._rows:
            table.add_row(*(row[heading] for heading in headings))
        return table


def _job_cells(job: JobView, now_seconds: float) -> dict[str, str | Text]:
    report = job.report
    noise = report.noise if report else None
    goodput = report.goodput_measured if report else None
    return {
        "job": job.id,
        "phase": Text(job_phase(job), style=_PHASE_STYLE[job.phase]),
        "instances": instances_text(job),
        "batch": str(report.batch.total) if report else "-",
        "noise scale": number(noise.examples) if noise and is_usable(noise) else "-",
        "goodput": f"{number(goodput)} ex/s" if goodput else "-",
        "progress": progress_text(job),
        "left": format_duration(job.eta_seconds) if job.eta_seconds is not None else "-",
        "$/h": f"{job.usd_per_hour:.2f}",
        "spent": money(job.spent_usd),
        "objective": objective_text(job, now_seconds),
    }


def job_phase(job: JobView) -> str:
    """Return the phase of a job; that of a trial that its study pruned is `pruned`."""
    return TrialEnding.PRUNED if job.trial_ending is TrialEnding.PRUNED else job.phase


def weight_text(job: JobView) -> str:
    """What the job weighs where jobs compete, and by what."""
    has_share = job.person is not None and job.weight != job.priority
    whose = f", {job.person}'s share" if has_share else ""
    return f"{number(job.weight)}   priority {format_priority(job.priority)}{whose}"


def objective_text(job: JobView, now_seconds: float) -> str:
    """What its owner asks of a job; of an ended one, what was left of it at its end."""
    return describe_objective(job.objective, job.ended_seconds or now_seconds)


def instances_text(job: JobView) -> str:
    """Instances by offer, with the phases of those that do not train yet or any more."""
    parts = []
    for offer in sorted({instance.offer for instance in job.instances}):
        phases = [instance.phase for instance in job.instances if instance.offer == offer]
        others = sorted({phase_words(phase, job) for phase in phases if phase != "training"})
        suffix = f" ({', '.join(others)})" if others else ""
        parts.append(f"{len(phases)} x {offer}{suffix}")
    return ", ".join(parts) or "-"


def phase_words(phase: InstancePhase, job: JobView) -> str:
    """Return the phase of an instance; a script without a session runs, and trains nothing."""
    if job.is_sessionless and phase is InstancePhase.STARTING:
        return "running, no session"
    return phase


def progress_text(job: JobView) -> str:
    """Return the share of the useful examples that is done."""
    report = job.report
    if job.is_sessionless:
        return "unknown"
    if report is None or not report.total_examples:
        return "-"
    return f"{min(report.progress_examples / report.total_examples, 1):.0%}"


def clock_time(seconds: float) -> str:
    """A time of day, in the reader's own zone."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


def checkpoint_words(job: JobView) -> str:
    """Return where the checkpoints of a job are, as far as its reports say.

    The checkpoint that is saved at the end may come after the last report.
    """
    if job.report is not None and job.report.checkpoint.step is not None:
        return f"checkpoints are in {job.checkpoint_directory}"
    if job.phase.is_final:
        return f"checkpoints, if it saved any, are in {job.checkpoint_directory}"
    return f"it has reported no checkpoint yet; they go to {job.checkpoint_directory}"


def rest_of_logs(job: JobView) -> str:
    """Return which command shows all that a job printed."""
    return f"castor logs {job.id} shows all that it printed"


def alarm_text(alarm: ModelAlarm, now_seconds: float) -> str:
    """Return an alarm in words, with how long its condition has lasted."""
    lasted = format_duration(max(now_seconds - alarm.since_seconds, 0.0))
    return f"alarm for {lasted}: {alarm.text}"


def print_decisions(decisions: Sequence[DecisionView], of: str, as_json: bool) -> None:
    """Print decisions, the latest first as given, in the order in which they were made."""
    if as_json:
        print_json(tuple[DecisionView, ...], decisions)
        return
    for decision in reversed(decisions):
        print(f"{clock_time(decision.at_seconds)}  {decision.reason}")
    if not decisions:
        print(f"nothing was decided for {of} yet")


def print_remarks(job: JobView, now_seconds: float) -> None:
    """Print what holds of a job beside its decisions: no session, too little memory, its alarm."""
    if job.is_sessionless:
        print(f"{job.id}: {job.cause}")
    if job.report is not None:
        for text in job.report.bounds.memory_words:
            print(f"{job.id}: {text}")
    if job.alarm is not None:
        print(alarm_text(job.alarm, now_seconds))


def forecast_table(job: JobView, forecast: Sequence[ForecastView]) -> Table:
    """What a job took, beside what it would have taken at every fixed size by its model."""
    table = Table(box=None, header_style="bold")
    table.add_column(job.id)
    for heading in ("time", "at 90 %", "cost", "at 90 %"):
        table.add_column(heading, justify="right")
    table.add_column("")
    took_seconds = (job.ended_seconds or job.submitted_seconds) - job.submitted_seconds
    cells = ("elastic", format_duration(took_seconds), "", money(job.spent_usd), "", "as it ran")
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
    """Return a table of what was spent, by job, offer and day.

    Months and persons have rows where there are several, and transfer a column if there was any.
    """
    sent = costs.transfer
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("spent", justify="right")
    if sent is not None:
        table.add_column("of it transfer", justify="right")
    for title, parts, sent_parts in (
        ("job", costs.by_job, sent.by_job if sent else {}),
        ("offer", costs.by_offer, sent.by_offer if sent else {}),
        ("day", costs.by_day, sent.by_day if sent else {}),
        ("month", costs.by_month if len(costs.by_month) > 1 else {}, {}),
        ("person", costs.by_person if len(costs.by_person) > 1 else {}, {}),
    ):
        for name, usd in sorted(parts.items()):
            is_paid = title == "offer" and name in costs.paid_already
            cells = [f"{title} {name}", "paid already" if is_paid and not usd else money(usd)]
            if name in sent_parts:
                cells.append(money(sent_parts[name]))
            table.add_row(*cells)
    in_all = [costs.total_usd] if sent is None else [costs.total_usd, sent.total_usd]
    table.add_row("in all", *map(money, in_all), style="bold")
    table.add_row("now, an hour", money(costs.usd_per_hour))
    return table
