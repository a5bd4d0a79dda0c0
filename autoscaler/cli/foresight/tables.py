"""Tables of a job's history and predictions, and the parser of its assumed objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.output import print_json
from autoscaler.cli.submit.changes import terms_text
from autoscaler.cli.tables import clock_time, money, number, words_table
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SpecError
from autoscaler.spec.objective_text import describe_objective
from autoscaler.spec.quantities import (
    format_duration,
    parse_duration,
    parse_moment,
    parse_money,
)
from autoscaler.wire.outlook_messages import (
    ChangePlan,
    CurvePointView,
    CurveView,
    HistoryView,
    Hypothesis,
    OutlookView,
    QuantilesView,
    WhatIfView,
)

Parsed = TypeVar("Parsed")

_HOW_TO_ASK = (
    "To ask about another objective, add --value-of-time 40, --deadline 4h, --budget 20 or --max "
    "8."
)


def parse_hypothesis(
    value_of_time: str | None,
    deadline: str | None,
    budget: str | None,
    most: int | None,
    now_seconds: float,
) -> Hypothesis:
    """Return the assumptions that options of the command line state.

    Raises:
        SpecError: a text can't be parsed; its field is the option.
    """
    value = _parsed(value_of_time, "--value-of-time", parse_money)
    return Hypothesis(
        value_of_time_usd_per_hour=None if value is None else float(value),
        deadline_seconds=_parsed(
            deadline, "--deadline", lambda text: parse_moment(text, now_seconds)
        ),
        budget_usd=_parsed(budget, "--budget", parse_money),
        maximum=most,
    )


def _parsed(text: str | None, option: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise SpecError(str(error), option) from None


def print_curve(view: CurveView) -> None:
    """Print a row for each size of each offer."""
    if view.missing is not None:
        print_whole(Text(f"{view.job}: no curve: {view.missing}"))
        return
    right = ("useful\nexamples/s", "9 in 10\nwithin", "price", "a million\nexamples")
    table = words_table("allocation", *right, "", wraps=("allocation", ""), right=right)
    held, candidate = (
        None if point is None else point.allocation for point in (view.held, view.candidate)
    )
    for curve in view.offers:
        for point in curve.points:
            low, high = point.goodput_band
            table.add_row(
                str(point.allocation),
                number(point.goodput),
                f"{number(low)} to {number(high)}",
                f"{money(point.usd_per_hour)}/h",
                predicted_money(point.usd_per_million_examples),
                ", ".join(_marks(point, held, candidate, view.decided)),
                style="bold" if point.allocation in (held, candidate) else "",
            )
    value = view.value_of_time_usd_per_hour or 0.0
    words = f"{view.job}: value of time {money(value)}/h, in the price of a million examples"
    parts: list[RenderableType] = [Text(words, style="bold"), Text(), table]
    if view.decision is not None:
        parts += [Text(), Text(f"last decision: {view.decision.reason}")]
    print_whole(Group(*parts))


def _marks(
    point: CurvePointView, held: Allocation | None, candidate: Allocation | None, decided: bool
) -> list[str]:
    marks = []
    if point.allocation == held:
        marks.append("held")
    if point.allocation == candidate:
        marks.append("decided" if decided else "best other")
    if not point.measured:
        marks.append("not measured")
    if not point.available:
        names = ", ".join(bar.title for bar in point.forbidden_by)
        marks.append(f"not available: {names}" if names else "not available now")
    return marks


def first_moment(age: str | None, now_seconds: float) -> float:
    """Return the time that is `age` ago, since the Unix epoch; 0 without an age.

    Raises:
        SpecError: the age can't be parsed.
    """
    age_seconds = _parsed(age, "--since", parse_duration)
    return 0.0 if age_seconds is None else max(now_seconds - age_seconds, 0.0)


def print_history(view: HistoryView) -> None:
    """Print a row for each point of time."""
    right = ("useful\nexamples/s", "batch", "noise\nscale", "rate", "loss", "price", "spent")
    table = words_table("time", "instances", *right, wraps=("instances",), right=right)
    for index, at_seconds in enumerate(view.times):
        held = [
            f"{counts[index]} x {offer}"
            for offer, counts in view.instances.items()
            if counts[index]
        ]
        table.add_row(
            clock_time(at_seconds),
            ", ".join(held) or "-",
            number(view.goodput[index]),
            number(view.batch[index]),
            number(view.noise_examples[index]),
            number(view.learning_rate[index]),
            number(view.loss[index]),
            f"{money(view.usd_per_hour[index])}/h",
            money(view.spent_usd[index]),
        )
    print_whole(Group(Text(view.job, style="bold"), table))


def print_what_if(view: WhatIfView, is_asked: bool) -> None:
    """Print the present outlook of a job beside the one of the assumed objective.

    If nothing else is asked, only the present outlook is printed, and how to ask.
    """
    now_seconds = view.assumed.at_seconds
    words = f"{describe_objective(view.objective, now_seconds)}, at most {view.maximum} instances"
    heading = Text(f"{view.job}: predicted, nothing is changed", style="bold")
    if is_asked:
        columns = {"present objective": view.present, words: view.assumed}
        print_whole(Group(heading, _outlooks_table(columns, now_seconds)))
        return
    table = _outlooks_table({f"present objective: {words}": view.present}, now_seconds)
    print_whole(Group(heading, table, Text(), Text(_HOW_TO_ASK)))


def print_change(view: ChangePlan, now_seconds: float, as_json: bool) -> None:
    """Print the outlook of a job with and without changes, and the next plan's decision."""
    if as_json:
        print_json(ChangePlan, view)
        return
    words = f"with the change: {terms_text(view.job, now_seconds)}"
    columns = {"without the change": view.present, words: view.changed}
    table = _outlooks_table(columns, view.changed.at_seconds)
    decision = view.decision
    if decision is None or view.usd_per_hour is None:
        words = f"What the next plan would do with the change is unknown: {view.missing}."
    else:
        size = "no instance" if decision.target is None else str(decision.target)
        words = (
            f"With the change, the next plan would give {view.job.id} {size} for "
            f"{money(view.usd_per_hour)}/h: {decision.reason}"
        )
    lines = [words]
    if view.job.hands_off is not None:
        lines.append(f"That plan would not be carried out for now: {view.job.hands_off}.")
    lines.append("Nothing was changed. To change the job, leave out --dry-run.")
    heading = Text(f"{view.job.id}: dry run, predicted", style="bold")
    print_whole(Group(heading, table, Text(), *map(Text, lines)))


def _outlooks_table(outlooks: Mapping[str, OutlookView], now_seconds: float) -> Table:
    """Return a table of outlooks of a job, one in each column, by the columns' headings."""
    table = words_table("", *outlooks, wraps=tuple(outlooks))
    rows: dict[str, Callable[[OutlookView], str]] = {
        "finish in": lambda outlook: _finish(outlook, now_seconds),
        "whole cost": lambda outlook: _cost(outlook.total_usd),
        "size": lambda outlook: _sizes(outlook, now_seconds),
        "value of time": lambda outlook: _value(outlook.value_of_time_usd_per_hour),
        "limits kept in": _chance,
        "note": lambda outlook: outlook.missing or outlook.note or "-",
    }
    for heading, cell in rows.items():
        table.add_row(heading, *map(cell, outlooks.values()))
    return table


def predicted_money(usd: float) -> str:
    """Return a predicted amount of US dollars with two significant digits."""
    if usd == 0 or not math.isfinite(usd):
        return "$0" if usd == 0 else "-"
    decimals = max(1 - math.floor(math.log10(abs(usd))), 0)
    return f"${float(f'{usd:.2g}'):,.{decimals}f}"


def _finish(outlook: OutlookView, now_seconds: float) -> str:
    quantiles = outlook.finish_seconds
    if quantiles is None:
        return "-"
    median, low, high = (
        format_duration(max(at_seconds - now_seconds, 0.0))
        for at_seconds in (quantiles.median, *quantiles.band)
    )
    return f"{median} (9 in 10: {low} to {high})"


def _cost(quantiles: QuantilesView | None) -> str:
    if quantiles is None:
        return "-"
    low, high = (predicted_money(usd) for usd in quantiles.band)
    return f"{predicted_money(quantiles.median)} (9 in 10: {low} to {high})"


def _sizes(outlook: OutlookView, now_seconds: float) -> str:
    parts = []
    for size in outlook.sizes:
        left_seconds = size.from_seconds - now_seconds
        words = "nothing" if size.allocation is None else str(size.allocation)
        after = f" after {format_duration(left_seconds)}" if left_seconds >= 1 else ""
        parts.append(f"{words}{after}")
    return ", then ".join(parts) or "-"


def _value(usd_per_hour: float | None) -> str:
    return "-" if usd_per_hour is None else f"{predicted_money(usd_per_hour)}/h"


def _chance(outlook: OutlookView) -> str:
    if outlook.chance is None:
        return "no deadline or budget"
    is_less = outlook.confidence is not None and outlook.chance < outlook.confidence
    asked = f", {outlook.confidence:.0%} asked" if is_less else ""
    return f"{outlook.chance:.0%} of cases{asked}"
