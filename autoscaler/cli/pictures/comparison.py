"""Plot of `castor compare --plot`: each figure of each policy, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.cli.pictures.canvas import colour, new_figure, save
from autoscaler.cli.tables import number
from autoscaler.simulator.comparison import Figure, PolicyFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOUR = 3600.0
# Heading of each figure, and the divisor that converts its value to the heading's unit.
_PANELS = {
    "avg_jct_s": ("average completion time, hours", _HOUR),
    "p99_jct_s": ("99 % of jobs complete within, hours", _HOUR),
    "makespan_s": ("makespan: until the last job has ended, hours", _HOUR),
    "cost_usd": ("cost, US dollars", 1.0),
    "gpu_hours": ("device hours held", 1.0),
    "worst_ftf_rho": ("worst finish-time fairness: time / time with a fair share", 1.0),
    "unfair_share": ("jobs slower than with a fair share, %", 0.01),
    "restarts": ("resizes of running jobs", 1.0),
}
_COLUMNS = 2
_BAR_INCHES = 0.3


def draw_comparison(
    standings: Sequence[PolicyFigures], title: str, seeds: int, path: Path
) -> None:
    """Draw a panel for each figure that is known and not 0.

    Raises:
        SpecError: the file can't be written.
    """
    panels = [name for name in _PANELS if _has_values(standings, name)]
    rows = -(-len(panels) // _COLUMNS)
    figure = new_figure(rows * (1.0 + _BAR_INCHES * len(standings)) + 0.9)
    figure.suptitle(f"{title}: comparison of policies", x=0.01, ha="left", fontsize=13)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index < len(panels):
            _draw_panel(axes, standings, panels[index])
        else:
            axes.set_axis_off()
    figure.supxlabel(_footnote(seeds), fontsize=9, x=0.01, ha="left")
    save(figure, path)


def _draw_panel(axes: Axes, standings: Sequence[PolicyFigures], name: str) -> None:
    heading, unit = _PANELS[name]
    axes.set_title(heading, fontsize=10)
    widest = (
        max(
            _upper_end(standing.figures[name])
            for standing in standings
            if name in standing.figures
        )
        / unit
    )
    for row, standing in enumerate(standings):
        if name not in standing.figures:
            continue
        value = standing.figures[name].value
        error = None if value.half_width is None else value.half_width / unit
        mean = value.mean / unit
        axes.barh(row, mean, xerr=error, color=colour(row), height=0.7, capsize=3)
        right = _upper_end(standing.figures[name]) / unit + 0.02 * widest
        axes.text(right, row, number(mean), va="center", fontsize=8)
    axes.set_yticks(range(len(standings)), [standing.policy for standing in standings])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * widest or 1.0)
    axes.grid(axis="y", visible=False)


def _upper_end(figure: Figure) -> float:
    return figure.value.mean + (figure.value.half_width or 0.0)


def _has_values(standings: Sequence[PolicyFigures], name: str) -> bool:
    """Return whether the mean of a figure is above 0 for any policy."""
    return any(
        name in standing.figures and standing.figures[name].value.mean > 0
        for standing in standings
    )


def _footnote(seeds: int) -> str:
    if seeds == 1:
        return "one run of each policy; less is better"
    return f"means of {seeds} seeds with their 95 % confidence intervals; less is better"
