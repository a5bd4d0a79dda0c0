"""Plot of `castor plan --plot`: cost against finish time, and the objective's choice."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.cli.pictures.canvas import (
    GREY,
    RED,
    colour,
    label_points,
    legend_below,
    new_figure,
    save,
)
from autoscaler.cli.plan.run import allocation_words, objective_words
from autoscaler.cli.tables import money
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.plan_messages import PlanView, ProspectView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOUR = 3600.0
_MARGIN = 1.15
# Largest ratio of an axis' end to the largest median.
_MOST_STRETCH = 1.6
_LINE_CHARACTERS = 125
# Axes that reach beyond this value have ticks without decimals.
_WHOLE_TICKS_ABOVE = 20.0


def draw_frontier(view: PlanView, path: Path, now_seconds: float) -> None:
    """Draw the time-cost frontier of a plan, its chosen allocation, deadline and budget.

    Raises:
        SpecError: the file can't be written.
    """
    figure = new_figure(6.2)
    axes = figure.subplots()
    figure.suptitle(f"{view.job}: cost against time to finish", x=0.01, ha="left", fontsize=13)
    lines = (textwrap.fill(line, _LINE_CHARACTERS) for line in _subtitle(view, now_seconds))
    axes.set_title("\n".join(lines), fontsize=9)
    _draw_points(axes, view)
    _draw_constraints(axes, view, now_seconds)
    _set_limits(axes, view, now_seconds)
    label_points(
        axes,
        [_point(prospect) for prospect in view.frontier],
        [f"{prospect.first.instances} x" for prospect in view.frontier],
    )
    axes.set_xlabel("time to finish, hours (boots included)")
    axes.set_ylabel("cost of the whole job, US dollars")
    axes.yaxis.set_major_formatter(f"{{x:,.{decimals_of_ticks(axes.get_ylim()[1])}f}}")
    axes.xaxis.set_major_formatter("{x:,g}")
    legend_below(axes, 3)
    save(figure, path)


def decimals_of_ticks(most: float) -> int:
    """Return the number of decimals for the ticks of an axis from 0 to `most`."""
    return 0 if most > _WHOLE_TICKS_ABOVE else max(2, 1 - math.floor(math.log10(most)))


def _subtitle(view: PlanView, now_seconds: float) -> Iterator[str]:
    yield objective_words(view, now_seconds)
    chosen = view.chosen
    if chosen is not None:
        yield (
            f"{'choice:' if view.shortfall is None else 'chosen instead:'} "
            f"{allocation_words(chosen)}: median {format_duration(chosen.seconds)} and "
            f"{money(chosen.usd)}; 90 % of cases within {format_duration(chosen.seconds_90)} and "
            f"{money(chosen.usd_90)}"
        )
    if view.shortfall is not None:
        yield view.shortfall
    yield view.known


def _draw_points(axes: Axes, view: PlanView) -> None:
    if view.others:
        xs, ys = zip(*(_point(prospect) for prospect in view.others), strict=True)
        axes.plot(
            xs, ys, ".", color=GREY, alpha=0.45, label="other allocations, reclaims not counted"
        )
    xs, ys = zip(*(_point(prospect) for prospect in view.frontier), strict=True)
    axes.plot(xs, ys, color=GREY, zorder=2, label="frontier: best at some value of time")
    for index, offer in enumerate(
        dict.fromkeys(prospect.first.offer for prospect in view.frontier)
    ):
        of_offer = [prospect for prospect in view.frontier if prospect.first.offer == offer]
        xs, ys = zip(*(_point(prospect) for prospect in of_offer), strict=True)
        axes.plot(xs, ys, "o", color=colour(index), zorder=3, label=f"instances of {offer}")
    for index, prospect in enumerate(view.frontier):
        label = "90 % of cases are within" if index == 0 else None
        _draw_whiskers(axes, prospect, GREY, label)
    if view.chosen is not None:
        x, y = _point(view.chosen)
        label = "your objective" if view.shortfall is None else "chosen instead"
        axes.plot([x], [y], "*", color=RED, markersize=24, zorder=2.5, label=label)
        _draw_whiskers(axes, view.chosen, RED, None)


def _draw_whiskers(axes: Axes, prospect: ProspectView, colour: str, label: str | None) -> None:
    x, y = _point(prospect)
    lines = (([x, prospect.seconds_90 / _HOUR], [y, y]), ([x, x], [y, prospect.usd_90]))
    for (xs, ys), line_label in zip(lines, (label, None), strict=True):
        axes.plot(xs, ys, color=colour, linewidth=0.8, alpha=0.7, label=line_label)


def _draw_constraints(axes: Axes, view: PlanView, now_seconds: float) -> None:
    deadline, budget = view.objective.deadline_seconds, view.objective.budget_usd
    if deadline is not None:
        hours = (deadline - now_seconds) / _HOUR
        axes.axvline(hours, color=RED, linestyle="--", label="deadline")
    if budget is not None:
        axes.axhline(float(budget), color=RED, linestyle=":", label="budget")


def _set_limits(axes: Axes, view: PlanView, now_seconds: float) -> None:
    """Set the limits of both axes to frontier, choice, deadline and budget, without outliers."""
    shown = [*view.frontier, *((view.chosen,) if view.chosen else ())]
    deadline, budget = view.objective.deadline_seconds, view.objective.budget_usd
    hours = _axis_end(
        [(prospect.seconds / _HOUR, prospect.seconds_90 / _HOUR) for prospect in shown]
    )
    usd = _axis_end([(prospect.usd, prospect.usd_90) for prospect in shown])
    if deadline is not None:
        hours = max(hours, (deadline - now_seconds) / _HOUR)
    if budget is not None:
        usd = max(usd, float(budget))
    axes.set_xlim(0, _MARGIN * hours)
    axes.set_ylim(0, _MARGIN * usd or 1.0)


def _axis_end(ranges: Sequence[tuple[float, float]]) -> float:
    """Return the end of an axis for pairs of median and 90 % quantile.

    The end is the largest quantile, but at most 1.6 times the largest median.
    """
    largest_median = max(median for median, _ in ranges)
    return min(max(quantile for _, quantile in ranges), _MOST_STRETCH * largest_median)


def _point(prospect: ProspectView) -> tuple[float, float]:
    return prospect.seconds / _HOUR, prospect.usd
