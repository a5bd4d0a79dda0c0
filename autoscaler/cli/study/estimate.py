"""Simulated cost and finish of a study, and their tables."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.tables import money, words_table
from autoscaler.domain.errors import SpecError
from autoscaler.domain.objective import Objective
from autoscaler.simulator.studies.forecast import Band, Outlook, PoolOutlook, RungOutlook
from autoscaler.spec.objective_text import describe_objective
from autoscaler.spec.quantities import format_duration, format_money

# A limit is likely to be kept from this share of the runs on.
_LIKELY = 0.5
_NOT_KNOWN = (
    "the length of a step is assumed, so deadline and budget are not checked: give "
    "--step-seconds, or run the study, which measures its first trial before it reports a limit "
    "as out of reach"
)


@dataclass(frozen=True, slots=True)
class StudyEstimate:
    """Simulated cost and finish of a study.

    Attributes:
        objective: the study's objective, its deadline in seconds from now.
        stopped: share of runs that ended before their trials, for budget or deadline.
        assumed: assumptions that no measurement supports, in words.
        is_guess: whether the length of a step is assumed, so that no limit can be checked.
    """

    study: str
    trials: int
    steps: int
    pruner: str
    objective: Objective
    runs: int
    rungs: tuple[RungOutlook, ...]
    elastic: Outlook
    static: PoolOutlook | None
    stopped: float
    source: str
    assumed: tuple[str, ...]
    is_guess: bool = False


def plan_words(plan: StudyEstimate) -> RenderableType:
    """Return rungs, ranges of cost and finish beside the best pool, and the assumptions."""
    parts: list[RenderableType] = [
        Text(
            f"{plan.study}: {plan.trials} trials of {plan.steps} steps, {plan.pruner}; "
            f"{describe_objective(plan.objective, 0.0)}",
            style="bold",
        ),
        Text(f"on {plan.source}; {plan.runs} runs of the controller on a virtual clock"),
        Text(),
        _rungs(plan),
        Text(),
        _outlooks(plan),
        Text(),
    ]
    if plan.stopped:
        parts.append(Text(f"{plan.stopped:.0%} of runs end before their trials", style="red"))
    parts.extend(Text(f"assumed: {assumption}", style="dim") for assumption in plan.assumed)
    limits = plan.objective.deadline_seconds, plan.objective.budget_usd
    if plan.is_guess and any(limit is not None for limit in limits):
        parts.append(Text(_NOT_KNOWN))
    return Group(*parts)


def require_feasible(plan: StudyEstimate) -> None:
    """Check that some run or pool keeps the study's limits, if its pace is known.

    Raises:
        SpecError: no run and no pool keeps the deadline, or none keeps the budget.
    """
    if plan.is_guess:
        return
    objective, elastic = plan.objective, plan.elastic
    pool = None if plan.static is None else plan.static.outlook
    if elastic.in_time == 0.0 and (pool is None or not pool.in_time):
        asked = format_duration(objective.deadline_seconds or 0.0)
        soonest = format_duration(elastic.seconds.low)
        raise SpecError(
            f"no plan meets {asked}: the study takes at least {soonest}", "objective.deadline"
        )
    if elastic.in_budget == 0.0 and (pool is None or not pool.in_budget):
        raise SpecError(
            f"no plan keeps to {format_money(objective.budget_usd or 0.0)}: it pays for a part "
            "of the trials only",
            "objective.budget",
        )


def _rungs(plan: StudyEstimate) -> RenderableType:
    table = words_table("step", "trials that reach it", right=("step",))
    for rung in plan.rungs:
        table.add_row(f"{rung.step:g}", _count(rung.trials))
    return table


def _count(band: Band) -> str:
    if band.low == band.high:
        return f"{band.median:.0f}"
    return f"{band.median:.0f} ({band.low:.0f} to {band.high:.0f})"


def _outlooks(plan: StudyEstimate) -> RenderableType:
    headings = ("5 %", "median", "95 %")
    table = words_table("", *headings, "", wraps=("",), right=headings)
    _add(table, "Castor", plan.elastic)
    if plan.static is not None:
        size = f"{plan.static.size} x {plan.static.offer}"
        _add(table, f"best static pool: {size}", plan.static.outlook)
    return table


def _add(table: Table, name: str, outlook: Outlook) -> None:
    usd, seconds = outlook.usd, outlook.seconds
    costs = (money(quantile) for quantile in (usd.low, usd.median, usd.high))
    table.add_row(name, *costs, _chances(outlook))
    times = (format_duration(quantile) for quantile in (seconds.low, seconds.median, seconds.high))
    table.add_row("", *times, "")


def _chances(outlook: Outlook) -> str:
    """Return the shares of runs that keep the limits, and whether they are likely to be kept."""
    shares = []
    if outlook.in_time is not None:
        shares.append(f"in time {outlook.in_time:.0%}")
    if outlook.in_budget is not None:
        shares.append(f"in budget {outlook.in_budget:.0%}")
    if shares and outlook.chance < _LIKELY:
        shares.append("unlikely")
    return ", ".join(shares)
