"""Views of jobs for a terminal: overview, detail, decisions and the fleet's state."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autoscaler.cli.tables import (
    JobsTable,
    alarm_text,
    checkpoint_words,
    clock_time,
    counted,
    instances_text,
    job_phase,
    money,
    number,
    objective_text,
    phase_words,
    rest_of_logs,
    weight_text,
)
from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.training import RESTARTS, Engine
from autoscaler.goodput.draws import is_usable
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.messages import DecisionView, EventView, FleetView, InstanceView, JobView

_REFRESH_SECONDS = 1.0
_COLUMNS_OF_FILES = 160
_OFFERS_NAMED = 3


def show(render: Callable[[], RenderableType], watch: bool, clock: Clock) -> None:
    """Print a view once or, with `watch`, refresh it every second until Ctrl-C.

    While no controller answers, the last view stays, with the error below.
    """
    view = render()
    if not watch:
        print_whole(view)
        return
    with Live(view, screen=False, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            clock.sleep(_REFRESH_SECONDS)
            try:
                view = shown = render()
            except Unavailable as error:
                shown = Group(view, Text(f"not up to date: {error}", style="red"))
            live.update(shown, refresh=True)


def print_whole(view: RenderableType) -> None:
    """Print a view without truncation where the width of the output is unknown.

    Outside a terminal and without COLUMNS, the view is 160 columns wide and lines may be longer.
    """
    console = Console()
    has_width = console.is_terminal or "COLUMNS" in os.environ
    if not has_width:
        console = Console(width=_COLUMNS_OF_FILES)
    console.print(view, soft_wrap=not has_width)


def overview(jobs: Sequence[JobView], fleet: FleetView, now_seconds: float) -> RenderableType:
    """Return a view of all jobs: table, last decision and errors of each, and the fleet."""
    if not jobs:
        words = "no job runs: castor status --all lists ended jobs, castor submit starts a job"
        return Group(Text(words, style="dim"), _fleet_line(fleet, now_seconds))
    parts: list[RenderableType] = [JobsTable(jobs, now_seconds), Text()]
    for job in jobs:
        if job.decision is not None:
            parts.append(_decision_line(job.decision))
        if job.cause is not None:
            parts.append(Text(f"{job.id}: {job.cause}", style="red"))
        if job.trouble is not None:
            parts.append(Text(f"{job.id}: {job.trouble}", style="red"))
        if job.stall is not None:
            parts.append(Text(f"{job.id}: stalled: {job.stall}", style="red"))
        if job.alarm is not None:
            parts.append(Text(f"{job.id}: {alarm_text(job.alarm, now_seconds)}", style="yellow"))
        parts.extend(Text(f"{job.id}: {text}", style="yellow") for text in job.false_starts)
    parts.append(_fleet_line(fleet, now_seconds))
    return Group(*parts)


def panels(
    jobs: Sequence[JobView],
    decisions: Sequence[DecisionView],
    fleet: FleetView,
    now_seconds: float,
    title: str,
) -> RenderableType:
    """Return the demo's view: a panel for each job, the decisions and the fleet."""
    lines: list[RenderableType] = [_decision_line(decision) for decision in decisions]
    return Group(
        Text(title, style="bold"),
        *(_job_panel(job, now_seconds) for job in jobs),
        Panel(Group(*lines), title="decisions", title_align="left", border_style="dim"),
        _fleet_line(fleet, now_seconds),
    )


def job_detail(
    job: JobView, trouble: str | None, now_seconds: float, checkpoint: str | None = None
) -> RenderableType:
    """Return the detailed view of a job.

    Args:
        job: the job.
        trouble: error of its fleet; None if there is none.
        now_seconds: current time.
        checkpoint: words about the checkpoint of an ended job; None: words from `job`.
    """
    parts: list[RenderableType] = [_job_panel(job, now_seconds)]
    for instance in job.instances:
        parts.append(_instance_line(instance, job, now_seconds))
    if job.decision is not None:
        parts.append(_decision_line(job.decision))
    if job.cause is not None:
        kind = "" if job.failure_category is None else f"{job.failure_category}: "
        parts.append(Text(f"{kind}{job.cause}", style="red"))
    if job.stall is not None:
        parts.append(Text(f"stalled: {job.stall}", style="red"))
    if job.trouble is not None:
        parts.append(Text(f"error of this job: {job.trouble}", style="red"))
    if job.alarm is not None:
        parts.append(Text(alarm_text(job.alarm, now_seconds), style="yellow"))
    if trouble and not job.phase.is_final:
        parts.append(Text(f"error of the fleet: {trouble}", style="red"))
    if job.hands_off is not None:
        parts.append(Text(f"{job.hands_off}: no instance is launched or ended", style="yellow"))
    if job.last_lines or job.phase is JobPhase.FAILED:
        parts.append(Text(rest_of_logs(job), style="dim"))
    parts.extend(_event_line(event, job.cause) for event in reversed(job.events))
    parts.append(Text(checkpoint or checkpoint_words(job), style="dim"))
    return Group(*parts)


def _event_line(event: EventView, cause: str | None) -> Text:
    """Return the line of an event, without a suffix that repeats the job's `cause`."""
    parts = [f"{clock_time(event.at_seconds)}  {event.kind}", *event.text.split(": ")]
    ends = (end for end in range(1, len(parts)) if _repeats_cause(": ".join(parts[end:]), cause))
    return Text(": ".join(parts[: next(ends, None)]))


def _repeats_cause(text: str, cause: str | None) -> bool:
    return cause is not None and cause.startswith(text)


def _instance_line(instance: InstanceView, job: JobView, now_seconds: float) -> Text:
    """Return the line of an instance. A queued instance is shown with its waiting time."""
    gang = "" if instance.gang is None else f"{instance.gang}, "
    text = f"{instance.id}: {instance.offer}, {gang}{phase_words(instance.phase, job)}"
    if instance.phase is InstancePhase.QUEUED:
        text += f" for {format_duration(now_seconds - instance.requested_seconds)}"
    return Text(text, style="dim")


def _job_panel(job: JobView, now_seconds: float) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for label, value in _facts(job):
        grid.add_row(Text(label, style="dim"), value)
    report = job.report
    parts: list[RenderableType] = [grid]
    if report is not None and report.total_examples:
        done = min(report.progress_examples, report.total_examples)
        parts.append(ProgressBar(total=report.total_examples, completed=done))
    title = f"{job.id}: {job_phase(job)} - {objective_text(job, now_seconds)}"
    return Panel(Group(*parts), title=title, title_align="left")


def _facts(job: JobView) -> list[tuple[str, str]]:
    report = job.report
    facts = [("instances", instances_text(job))]
    if report is not None:
        noise = report.noise
        goodput = f"{number(job.goodput_measured)} useful examples/s"
        if job.goodput_predicted is not None:
            goodput += f", model {number(job.goodput_predicted)}"
        batch = f"{report.batch.total}"
        if report.batch.accumulation:
            batch += f" in {report.batch.accumulation + 1} micro-steps"
        is_known = noise is not None and is_usable(noise)
        unknown = "not known yet" if report.bounds.may_grow else "not measured, the batch is fixed"
        scale = f"{number(noise.examples)} examples" if noise and is_known else unknown
        if not job.waits:
            facts.append(("goodput", goodput))
        facts += [
            ("batch", f"{batch}   noise scale {scale}   learning rate {report.learning_rate:.3g}"),
        ]
        if report.state_bytes is not None:
            facts.append(("traffic", _traffic(report.parameter_bytes, report.state_bytes)))
        facts += [("memory", text) for text in report.bounds.memory_messages]
        time_left = ""
        if job.eta_seconds is not None:
            time_left = f", {format_duration(job.eta_seconds)} left"
        done = f"{report.progress_examples:,.0f}"
        total = f"{report.total_examples:,.0f}" if report.total_examples else "?"
        facts.append(("progress", f"{done} of {total} useful examples{time_left}"))
        if report.metrics:
            numbers = "   ".join(f"{name} {value:.4g}" for name, value in report.metrics.items())
            facts.append(("reported", numbers))
        if report.checkpoint is not None and report.checkpoint.error is not None:
            facts.append(("checkpoint", f"failed: {report.checkpoint.error}"))
        if report.engine == Engine.ROSTER:
            facts.append(("engine", "roster: without torchft"))
        if report.engine == RESTARTS:
            facts.append(("resized by", "restarts from the command's checkpoints"))
    if job.weight != 1.0 or job.priority != 1.0:
        facts.append(("weight", weight_text(job)))
    facts.append(("cost", f"{money(job.usd_per_hour)}/h now, {money(job.spent_usd)} spent"))
    return facts


def _traffic(gradient_bytes: int, state_bytes: int) -> str:
    """Return words for network traffic: megabytes per step, and per joining instance."""
    gradients, state = (f"{size / 1e6:,.1f} MB" for size in (gradient_bytes, state_bytes))
    return f"{gradients} of gradients a step, {state} of state to an instance that joins"


def _decision_line(decision: DecisionView) -> Text:
    text = Text(f"{clock_time(decision.stated_seconds)}  ", style="dim")
    style = {"grow": "green", "start": "green", "shrink": "yellow", "stop": "red"}
    text.append(decision.reason, style=style.get(decision.action, ""))
    return text


def _fleet_line(fleet: FleetView, now_seconds: float) -> Text:
    text = f"fleet: {counted(len(fleet.instances), 'instance')}, {money(fleet.usd_per_hour)}/h"
    for name, price in fleet.shadow_prices_usd_per_hour.items():
        text += f"; one more of {name} would be worth ${price:.3g}/h"
    if fleet.productive_share is not None:
        text += f"; {fleet.productive_share:.0%} of today's time productive"
    line = Text(text, style="dim")
    if fleet.hands_off:
        line.append(f"; {fleet.hands_off}: no instance is launched or ended", style="yellow")
    if fleet.strays:
        strays = ", ".join(sorted(fleet.strays))
        line.append(f"; {strays} ran without an order and were ended", style="yellow")
    if fleet.trouble:
        line.append(f"; error: {fleet.trouble}", style="red")
    for provider, notes in fleet.notes.items():
        line.append(f"; {provider}: {'; '.join(notes)}", style="yellow")
    if fleet.failed_plans:
        words = f"; {fleet.failed_plans} plans failed for some or all jobs"
        line.append(words, style="red")
    if fleet.solver_failures:
        line.append(f"; {fleet.solver_failures} plans made without the solver", style="yellow")
    if fleet.unavailable:
        line.append(f"; refused recently: {_refusals(fleet)}", style="yellow")
    return line


def _refusals(fleet: FleetView) -> str:
    """Return refused offers grouped by reason, at most 3 offers named for each."""
    reasons: dict[str, list[str]] = {}
    for offer in sorted(fleet.unavailable):
        reasons.setdefault(fleet.refusals.get(offer, ""), []).append(offer)
    parts = []
    for reason, offers in reasons.items():
        named = ", ".join(offers[:_OFFERS_NAMED])
        more = f" and {len(offers) - _OFFERS_NAMED} more" if len(offers) > _OFFERS_NAMED else ""
        parts.append(f"{named}{more}: {reason}" if reason else f"{named}{more}")
    return "; ".join(parts)
