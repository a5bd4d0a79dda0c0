"""`castor plan --plot`: cost against finish time, and where the objective lands."""

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
from autoscaler.cli.planning import allocation_words, objective_words
from autoscaler.cli.tables import money
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.plan_messages import PlanView, ProspectView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOUR = 3600.0
_MARGIN = 1.15
# No axis goes further than this times the largest median.
_FAR = 1.6
_LINE_CHARACTERS = 125
_LARGE = 20.0


def draw_frontier(view: PlanView, path: Path, now_seconds: float) -> None:
    """Draw the plan.

    Raises:
        SpecError: the file can't be written.
    """
    figure = new_figure(6.2)
    axes = figure.subplots()
    figure.suptitle(f"{view.job}: what money buys of time", x=0.01, ha="left", fontsize=13)
    lines = (textwrap.fill(line, _LINE_CHARACTERS) for line in _subtitle(view, now_seconds))
    axes.set_title("\n".join(lines), fontsize=9)
    _points(axes, view)
    _bounds(axes, view, now_seconds)
    _window(axes, view, now_seconds)
    label_points(
        axes,
        [_point(each) for each in view.frontier],
        [f"{each.first.instances} x" for each in view.frontier],
    )
    axes.set_xlabel("time to finish, hours (boots included)")
    axes.set_ylabel("cost of the whole job, US dollars")
    axes.yaxis.set_major_formatter(f"{{x:,.{decimals_of_ticks(axes.get_ylim()[1])}f}}")
    axes.xaxis.set_major_formatter("{x:,g}")
    legend_below(axes, 3)
    save(figure, path)


def decimals_of_ticks(most: float) -> int:
    """Return the decimals that tell apart the ticks of an axis that goes from 0 to `most`."""
    return 0 if most > _LARGE else max(2, 1 - math.floor(math.log10(most)))


def _subtitle(view: PlanView, now_seconds: float) -> Iterator[str]:
    yield objective_words(view, now_seconds)
    chosen = view.chosen
    if chosen is not None:
        yield (
            f"{'lands on' if view.shortfall is None else 'instead'} {allocation_words(chosen)}: "
            f"{format_duration(chosen.seconds)} and {money(chosen.usd)} as likely as not, "
            f"{format_duration(chosen.seconds_90)} and {money(chosen.usd_90)} in 90 % of cases"
        )
    if view.shortfall is not None:
        yield view.shortfall
    yield view.known


def _points(axes: Axes, view: PlanView) -> None:
    if view.others:
        xs, ys = zip(*(_point(each) for each in view.others), strict=True)
        axes.plot(
            xs, ys, ".", color=GREY, alpha=0.45, label="other allocations, reclaims not counted"
        )
    xs, ys = zip(*(_point(each) for each in view.frontier), strict=True)
    axes.plot(xs, ys, color=GREY, zorder=2, label="the best at some value of time")
    for index, offer in enumerate(dict.fromkeys(each.first.offer for each in view.frontier)):
        of_offer = [each for each in view.frontier if each.first.offer == offer]
        xs, ys = zip(*(_point(each) for each in of_offer), strict=True)
        axes.plot(xs, ys, "o", color=colour(index), zorder=3, label=f"instances of {offer}")
    for index, each in enumerate(view.frontier):
        label = "what 90 % of cases stay within" if index == 0 else None
        _whiskers(axes, each, GREY, label)
    if view.chosen is not None:
        x, y = _point(view.chosen)
        label = "your objective" if view.shortfall is None else "what it would do instead"
        axes.plot([x], [y], "*", color=RED, markersize=24, zorder=2.5, label=label)
        _whiskers(axes, view.chosen, RED, None)


def _whiskers(axes: Axes, each: ProspectView, colour: str, label: str | None) -> None:
    x, y = _point(each)
    ways = (([x, each.seconds_90 / _HOUR], [y, y]), ([x, x], [y, each.usd_90]))
    for (xs, ys), word in zip(ways, (label, None), strict=True):
        axes.plot(xs, ys, color=colour, linewidth=0.8, alpha=0.7, label=word)


def _bounds(axes: Axes, view: PlanView, now_seconds: float) -> None:
    deadline, budget = view.objective.deadline_seconds, view.objective.budget_usd
    if deadline is not None:
        hours = (deadline - now_seconds) / _HOUR
        axes.axvline(hours, color=RED, linestyle="--", label="deadline")
    if budget is not None:
        axes.axhline(float(budget), color=RED, linestyle=":", label="budget")


def _window(axes: Axes, view: PlanView, now_seconds: float) -> None:
    """Around the frontier: what is far worse would only make it small."""
    shown = [*view.frontier, *((view.chosen,) if view.chosen else ())]
    deadline, budget = view.objective.deadline_seconds, view.objective.budget_usd
    hours = _reach([(each.seconds / _HOUR, each.seconds_90 / _HOUR) for each in shown])
    usd = _reach([(each.usd, each.usd_90) for each in shown])
    if deadline is not None:
        hours = max(hours, (deadline - now_seconds) / _HOUR)
    if budget is not None:
        usd = max(usd, float(budget))
    axes.set_xlim(0, _MARGIN * hours)
    axes.set_ylim(0, _MARGIN * usd or 1.0)


def _reach(ranges: Sequence[tuple[float, float]]) -> float:
    """How far an axis goes: to all that 90 % stay within, if that is not far."""
    usually = max(median for median, _ in ranges)
    return min(max(surely for _, surely in ranges), _FAR * usually)


def _point(each: ProspectView) -> tuple[float, float]:
    return each.seconds / _HOUR, each.usd
