"""Plot of the demo's simulated cloud: dollars against hours of each way to run the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoscaler.cli.pictures.canvas import COLOURS, GREY, RED, label_points, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from autoscaler.cli.demo.paid_run import PaidRun

_HEIGHT_INCHES = 5.4
_MARGIN = 1.12
_LINES = 3


def draw_value(
    castor: PaidRun, rivals: Sequence[PaidRun], value_of_time: float, path: Path
) -> None:
    """Draw each run as a point, with lines of equal dollars and waiting together.

    Raises:
        SpecError: the file can't be written.
    """
    figure = new_figure(_HEIGHT_INCHES)
    axes = figure.subplots()
    figure.suptitle(
        f"{castor.jobs} jobs on a simulated cloud: dollars against hours", x=0.01, ha="left"
    )
    axes.set_title(
        f"On each dotted line, dollars and waiting at ${value_of_time:g} an hour cost the same",
        fontsize=9,
    )
    axes.set_xlabel("hours from submission to end, mean of the jobs")
    axes.set_ylabel("dollars of all jobs")
    axes.set_xlim(0, _MARGIN * max(run.mean_hours for run in (castor, *rivals)))
    axes.set_ylim(0, _MARGIN * max(run.usd for run in (castor, *rivals)))
    _draw_equal_costs(axes, (castor, *rivals), value_of_time)
    _draw_points(axes, castor, rivals)
    save(figure, path)


def _draw_points(axes: Axes, castor: PaidRun, rivals: Sequence[PaidRun]) -> None:
    """Draw and label all runs; the labels of fixed pools but the best one yield to others."""
    pools = [rival for rival in rivals if rival.is_pool]
    best = min(pools, key=lambda pool: pool.priced_usd, default=None)
    first = [castor, *(rival for rival in rivals if not rival.is_pool or rival is best)]
    order = [*first, *(pool for pool in pools if pool is not best)]
    for run in order:
        colour, marker = _look(run, castor, run is best)
        axes.scatter(run.mean_hours, run.usd, color=colour, marker=marker, s=70, zorder=3)
    label_points(
        axes,
        [(run.mean_hours, run.usd) for run in order],
        [_label(run, run is best) for run in order],
    )


def _look(run: PaidRun, castor: PaidRun, is_best: bool) -> tuple[str, str]:
    if run is castor:
        return COLOURS[2], "*"
    if not run.is_pool:
        return RED, "s"
    return (COLOURS[0] if is_best else GREY), "o"


def _label(run: PaidRun, is_best: bool) -> str:
    return f"{run.name} (best pool in hindsight)" if is_best else run.name


def _draw_equal_costs(axes: Axes, runs: Sequence[PaidRun], value_of_time: float) -> None:
    """Draw lines of equal cost through the cheapest run, and through dearer ones."""
    costs = sorted(run.priced_usd for run in runs)
    jobs = runs[0].jobs
    hours = np.array(axes.get_xlim())
    for cost in costs[:: max(len(costs) // _LINES, 1)]:
        axes.plot(hours, cost - value_of_time * jobs * hours, ":", color=GREY, linewidth=0.8)
