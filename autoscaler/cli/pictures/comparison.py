"""`castor compare --plot`: each figure of each policy, with its confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.cli.pictures.canvas import colour, new_figure, save
from autoscaler.cli.tables import number
from autoscaler.simulator.comparison import Figure, Standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOUR = 3600.0
# Of each figure: its heading, and what it is divided by to be in the unit that this names.
_PANELS = {
    "avg_jct_s": ("average completion time, hours", _HOUR),
    "p99_jct_s": ("99 % of jobs complete within, hours", _HOUR),
    "makespan_s": ("until the last job has ended, hours", _HOUR),
    "cost_usd": ("cost, US dollars", 1.0),
    "gpu_hours": ("device hours held", 1.0),
    "worst_ftf_rho": ("the worst off: its time over that of a fair share", 1.0),
    "unfair_share": ("jobs worse off than with a fair share, %", 0.01),
    "restarts": ("changes of what running jobs hold", 1.0),
}
_COLUMNS = 2
_BAR_INCHES = 0.3


def draw_comparison(standings: Sequence[Standing], title: str, seeds: int, path: Path) -> None:
    """Draw a panel for each figure that says something.

    Raises:
        SpecError: the file can't be written.
    """
    panels = [name for name in _PANELS if _values(standings, name)]
    rows = -(-len(panels) // _COLUMNS)
    figure = new_figure(rows * (1.0 + _BAR_INCHES * len(standings)) + 0.9)
    figure.suptitle(f"{title}: policies compared", x=0.01, ha="left", fontsize=13)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place < len(panels):
            _panel(axes, standings, panels[place])
        else:
            axes.set_axis_off()
    figure.supxlabel(_note(seeds), fontsize=9, x=0.01, ha="left")
    save(figure, path)


def _panel(axes: Axes, standings: Sequence[Standing], name: str) -> None:
    heading, unit = _PANELS[name]
    axes.set_title(heading, fontsize=10)
    widest = max(_end(each.figures[name]) for each in standings if name in each.figures) / unit
    for row, each in enumerate(standings):
        if name not in each.figures:
            continue
        value = each.figures[name].value
        error = None if value.half_width is None else value.half_width / unit
        mean = value.mean / unit
        axes.barh(row, mean, xerr=error, color=colour(row), height=0.7, capsize=3)
        right = _end(each.figures[name]) / unit + 0.02 * widest
        axes.text(right, row, number(mean), va="center", fontsize=8)
    axes.set_yticks(range(len(standings)), [each.policy for each in standings])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * widest or 1.0)
    axes.grid(axis="y", visible=False)


def _end(figure: Figure) -> float:
    return figure.value.mean + (figure.value.half_width or 0.0)


def _values(standings: Sequence[Standing], name: str) -> bool:
    """Whether the figure is known, and anything but 0, of some policy."""
    return any(name in each.figures and each.figures[name].value.mean > 0 for each in standings)


def _note(seeds: int) -> str:
    if seeds == 1:
        return "one run of each policy; less is better"
    return f"means of {seeds} seeds with their 95 % confidence intervals; less is better"
