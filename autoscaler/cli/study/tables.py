"""Tables of a simulated study, and of all studies of a controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from rich.table import Table

from autoscaler.cli.study.facts import TrialCosts, shortened, trial_facts
from autoscaler.cli.tables import money, number, words_table
from autoscaler.simulator.results import Result
from autoscaler.simulator.studies.results import StudyResult
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.study_messages import StudySummary

_LEAST_SHOWN_USD = Decimal("0.0001")


def study_rows(result: Result, study: StudyResult) -> dict[str, str]:
    """Return the rows of a simulated study's table, from name to value."""
    totals = result.totals
    ends = ", ".join(f"{count} {end}" for end, count in study.ends.items())
    rows = {
        "study": study.name,
        "policy": result.policy,
        "trials": f"{len(study.trials)}: {ends}",
        "best": "-" if study.best is None else number(study.best),
        "duration": format_duration(study.finished_s),
        "in time": _in_time(study),
        "spent": _spent(study),
        "device hours": number(totals.gpu_hours),
        "devices at work": f"{totals.gpu_utilisation:.0%}",
        "instances launched": str(study.launches),
        "instances handed over": str(study.hand_overs),
        "most instances at once": str(max((level.instances for level in study.held), default=0)),
        "resizes": str(totals.restarts),
        "plans": f"{totals.decisions}, {totals.decision_ms_p50:.1f} ms each, "
        f"95th percentile {totals.decision_ms_p95:.1f} ms",
        "plans that failed": str(totals.failed_plans),
    }
    hidden = {
        "in time": study.in_time is None,
        "spent": not study.cost_usd,
        "plans that failed": not totals.failed_plans,
    }
    return {name: value for name, value in rows.items() if not hidden.get(name)}


def _in_time(study: StudyResult) -> str:
    if study.deadline_s is None:
        return "-"
    left_seconds = study.deadline_s - study.finished_s
    if left_seconds >= 0:
        return f"yes, with {format_duration(left_seconds)} to spare"
    return f"no, {format_duration(-left_seconds)} late"


def _spent(study: StudyResult) -> str:
    spent = money(Decimal(study.cost_usd))
    if study.budget_usd is None:
        return spent
    return f"{spent} of {money(Decimal(study.budget_usd))}"


def studies_table(summaries: Iterable[StudySummary]) -> Table:
    """Return a table with a row for each study."""
    right = ("best", "running", "waiting", "ended", "$/h", "spent", "budget")
    table = words_table("study", "driver", *right, wraps=("driver",), right=right)
    for summary in summaries:
        table.add_row(
            summary.name,
            _driver_words(summary),
            number(summary.best),
            str(summary.running),
            str(summary.waiting),
            str(summary.ended),
            money(summary.usd_per_hour),
            "-" if summary.spent_usd is None else money(summary.spent_usd),
            "-" if summary.budget_usd is None else money(summary.budget_usd),
        )
    return table


def _driver_words(summary: StudySummary) -> str:
    if summary.driver is None:
        return "none runs"
    return summary.driver if summary.stop is None else f"{summary.driver}, stopping"


def trials_table(study: Any, costs: TrialCosts) -> Table:
    """Return a table of all recorded trials of a study."""
    table = Table("trial", "state", "value", "step", "time", "cost", "parameters", "job", box=None)
    for trial in study.trials:
        facts = trial_facts(trial, costs)
        values = " ".join(f"{value:.6g}" for value in facts["values"] or [])
        parameters = ", ".join(
            f"{name}={shortened(value)}" for name, value in facts["params"].items()
        )
        words = (
            *(facts["number"], facts["state"], values, facts["step"]),
            None if facts["seconds"] is None else format_duration(facts["seconds"]),
            _cost_words(facts),
            *(parameters, facts["job"]),
        )
        table.add_row(*("" if word is None else str(word) for word in words))
    return table


def _cost_words(facts: Mapping[str, Any]) -> str | None:
    prefix, text = ("", facts["usd"]) if facts["usd"] is not None else ("job ", facts["job_usd"])
    if text is None:
        return None
    is_small = 0 < Decimal(text) < _LEAST_SHOWN_USD
    return (
        f"{prefix}< {money(_LEAST_SHOWN_USD)}" if is_small else f"{prefix}{money(Decimal(text))}"
    )
