"""Plot of a study, simulated or real: devices of trials over time, and best value by cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.cli.pictures.canvas import COLOURS, GREY, RED, new_figure, save
from autoscaler.simulator.results import Result
from autoscaler.simulator.studies.driver import TrialReport
from autoscaler.simulator.studies.results import Level, StudyResult
from autoscaler.spec.quantities import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHORT_SECONDS = 7200.0
# A deadline is on the time axis if it is at most this many durations of the study.
_MOST_STRETCH = 2.0
# Largest height of the chart of trials, and height of a trial's line, in inches.
_MOST_INCHES, _LINE_INCHES = 9.0, 0.16
_ENDS = {"complete": "*", "pruned": "x", "stopped": "s", "failed": "X"}
_MOST_MARKS = 60
# Colours by number of devices: 1, from 2, from 4, from 8, ...
_DEVICE_COLOURS = ("#BFD9EA", "#7FB3D5", "#3F8DC0", "#0072B2", "#004C78", "#002E4A", "#001827")


@dataclass(frozen=True, slots=True)
class HoldingInterval:
    """Interval in which a trial held instances.

    Attributes:
        from_s: start, seconds since the start of the study.
        to_s: end, seconds since the start of the study.
        devices: number of devices at work; 0 while instances boot, pause or idle.
    """

    from_s: float
    to_s: float
    devices: int


@dataclass(frozen=True, slots=True)
class PicturedTrial:
    """One trial to draw. `end` is complete, pruned, stopped, failed, or another state if it runs.

    Times of `spans` and `reports` are seconds since the start of the study.
    """

    number: int
    end: str
    spans: tuple[HoldingInterval, ...]
    reports: tuple[TrialReport, ...]


@dataclass(frozen=True, slots=True)
class PicturedStudy:
    """Study to draw. Times are seconds since its start.

    Attributes:
        heading: title of the plot.
        trials: its trials.
        held: number and price of held instances, at each time at which they change.
        finished_s: duration of the study so far.
        deadline_s: deadline; None if it has none.
        barriers_s: times at which a rung ended for all trials.
        cost_usd: cost so far, in US dollars.
        maximize: whether larger values are better.
    """

    heading: str
    trials: tuple[PicturedTrial, ...]
    held: tuple[Level, ...]
    finished_s: float
    deadline_s: float | None
    barriers_s: tuple[float, ...]
    cost_usd: float
    maximize: bool

    @property
    def ends(self) -> frozenset[str]:
        """Ends of all trials."""
        return frozenset(trial.end for trial in self.trials)


def simulated_study(result: Result, study: StudyResult) -> PicturedStudy:
    """Return a simulated study in the form that `draw_study` draws."""
    by_name = {job.name: job for job in result.jobs}
    trials = (
        PicturedTrial(
            number=trial.number,
            end=trial.end,
            spans=tuple(
                HoldingInterval(entry.from_s, entry.to_s, entry.gpus if entry.batch_size else 0)
                for entry in by_name[trial.job].timeline
            ),
            reports=trial.reports,
        )
        for trial in study.trials
    )
    return PicturedStudy(
        heading=f"{study.name}: {len(study.trials)} trials under the policy {result.policy}",
        trials=tuple(trials),
        held=study.held,
        finished_s=study.finished_s,
        deadline_s=study.deadline_s,
        barriers_s=study.barriers_s,
        cost_usd=study.cost_usd,
        maximize=study.maximize,
    )


def draw_study(study: PicturedStudy, path: Path) -> None:
    """Draw devices of trials over time, held instances over time, and best value by cost.

    Raises:
        SpecError: the file can't be written.
    """
    lines = min(max(len(study.trials) * _LINE_INCHES, 2.5), _MOST_INCHES)
    figure = new_figure(lines + 5.5)
    figure.suptitle(study.heading, x=0.01, ha="left", fontsize=13)
    trials, held, best = figure.subplots(3, height_ratios=[lines, 2.0, 2.5])
    time = TimeAxis(study)
    _draw_trials(trials, study, time)
    _draw_held(held, study, time)
    _draw_best(best, study)
    save(figure, path)


class TimeAxis:
    """Time axis of a study, in seconds, minutes or hours.

    Attributes:
        deadline_s: deadline to draw; None if there is none or if it is far beyond the end.
        unit: seconds in a unit of the axis, with the name `word`.
        last: end of the axis, in this unit.
    """

    def __init__(self, study: PicturedStudy) -> None:
        deadline = study.deadline_s
        self.deadline_s = (
            deadline if (deadline or 0.0) <= _MOST_STRETCH * study.finished_s else None
        )
        last = max(study.finished_s, self.deadline_s or 0.0)
        units = {180.0: (1.0, "seconds"), _SHORT_SECONDS: (60.0, "minutes")}
        fitting = (unit for most, unit in units.items() if last < most)
        self.unit, self.word = next(fitting, (3600.0, "hours"))
        self.last = last / self.unit

    def along(self, axes: Axes, study: PicturedStudy) -> None:
        """Set the horizontal axis of a chart, and mark barriers and deadline."""
        for at_seconds in study.barriers_s:
            axes.axvline(at_seconds / self.unit, color=GREY, linewidth=0.8, linestyle=":")
        if self.deadline_s is not None:
            axes.axvline(self.deadline_s / self.unit, color=RED, linewidth=1.0, linestyle="--")
        elif study.deadline_s is not None:
            words = f"deadline after {format_duration(study.deadline_s)} "
            coordinates = axes.transAxes
            axes.text(1.0, 0.98, words, color=RED, ha="right", va="top", transform=coordinates)
        axes.set_xlim(0, self.last * 1.02)
        axes.set_xlabel(f"{self.word} since the start")


def _draw_trials(axes: Axes, study: PicturedStudy, time: TimeAxis) -> None:
    used: set[int] = set()
    for trial in study.trials:
        for span in trial.spans:
            along = [(span.from_s / time.unit, (span.to_s - span.from_s) / time.unit)]
            doublings = min(span.devices.bit_length(), len(_DEVICE_COLOURS)) - 1
            used |= {doublings} if span.devices else set()
            colour = _DEVICE_COLOURS[doublings] if span.devices else "#E3E3E3"
            axes.broken_barh(along, (trial.number - 0.4, 0.8), facecolors=colour)
        if trial.reports:
            marks = [report.at_s / time.unit for report in trial.reports[-_MOST_MARKS:]]
            rows = [trial.number] * len(marks)
            axes.plot(marks, rows, "|", color="#333333", markersize=4, markeredgewidth=0.8)
            last = trial.reports[-1].at_s / time.unit
            axes.plot(last, trial.number, _ENDS.get(trial.end, "."), color=RED, markersize=4)
    for doublings in sorted(used):
        most = 2 ** (doublings + 1) - 1
        words = "1 device" if not doublings else f"{2**doublings} to {most} devices"
        axes.barh([0], [0], color=_DEVICE_COLOURS[doublings], label=words)
    axes.barh([0], [0], color="#E3E3E3", label="boots, pauses, idle")
    for end, mark in _ENDS.items():
        if end in study.ends:
            axes.plot([], [], mark, color=RED, markersize=4, linestyle="", label=end)
    axes.set_title("devices of each trial; ticks: reports, dotted: barriers, dashed: deadline")
    axes.set_ylabel("trial")
    axes.set_ylim(len(study.trials) - 0.5, -0.5)
    time.along(axes, study)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)


def _draw_held(axes: Axes, study: PicturedStudy, time: TimeAxis) -> None:
    from matplotlib.ticker import MaxNLocator

    times = [level.at_s / time.unit for level in study.held]
    axes.step(times, [level.instances for level in study.held], where="post", color=COLOURS[0])
    released = [
        (after.at_s / time.unit, after.instances)
        for before, after in pairwise(study.held)
        if after.instances < before.instances
    ]
    if released:
        axes.plot(*zip(*released, strict=True), "v", color=RED, markersize=4, linestyle="")
    axes.set_title("instances held by all trials; triangles: releases")
    axes.set_ylabel("instances")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    time.along(axes, study)


def _draw_best(axes: Axes, study: PicturedStudy) -> None:
    """Draw the best value reported so far against US dollars spent so far."""
    reports = sorted(
        (report.at_s, report.value) for trial in study.trials for report in trial.reports
    )
    choose = max if study.maximize else min
    spent: list[float] = []
    best: list[float] = []
    for at_seconds, value in reports:
        spent.append(spent_usd(study.held, at_seconds))
        best.append(choose(best[-1], value) if best else value)
    if reports:
        axes.step([*spent, study.cost_usd], [*best, best[-1]], where="post", color=COLOURS[2])
    axes.set_title("best value reported, by dollars spent")
    axes.set_xlabel("spent, US dollars")
    axes.set_ylabel("value")
    axes.set_xlim(left=0)


def spent_usd(held: Sequence[Level], until_seconds: float) -> float:
    """Return the US dollars that instances cost until a time, without minimum charges of clouds.

    Args:
        held: number and price of held instances, at each time at which they change.
        until_seconds: seconds since the start of the study.
    """
    spent = 0.0
    for level, following in pairwise(held):
        lasted_seconds = min(following.at_s, until_seconds) - level.at_s
        spent += level.usd_per_hour * max(lasted_seconds, 0.0) / 3600
    return spent
