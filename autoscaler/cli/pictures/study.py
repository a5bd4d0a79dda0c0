"""What each trial of a study held and when, and what the best has cost: simulated or real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.cli.pictures.canvas import COLOURS, GREY, RED, new_figure, save
from autoscaler.simulator.results import Result
from autoscaler.simulator.study_driver import Report
from autoscaler.simulator.study_results import Level, StudyResult
from autoscaler.spec.quantities import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHORT_SECONDS = 7200.0
# The axis reaches to a deadline of at most so many times what the study took.
_MOST_STRETCH = 2.0
# So many trials have a line of this height each, in inches; of more they are thinner.
_MOST_INCHES, _LINE_INCHES = 9.0, 0.16
_ENDS = {"complete": "*", "pruned": "x", "stopped": "s", "failed": "X"}
_MOST_MARKS = 60
_DOUBLINGS = ("#BFD9EA", "#7FB3D5", "#3F8DC0", "#0072B2", "#004C78", "#002E4A", "#001827")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch in which a trial held something; without `devices` at work: it boots, or idles."""

    from_s: float
    to_s: float
    devices: int


@dataclass(frozen=True, slots=True)
class PicturedTrial:
    """One trial; `end` is complete, pruned, stopped or failed, or anything else while it runs."""

    number: int
    end: str
    spans: tuple[Span, ...]
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class PicturedStudy:
    """A study to be drawn; times are seconds since its start, `held` as in `StudyResult`."""

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
        """How trials have ended."""
        return frozenset(trial.end for trial in self.trials)


def simulated_study(result: Result, study: StudyResult) -> PicturedStudy:
    """A study that was simulated, to be drawn."""
    by_name = {job.name: job for job in result.jobs}
    trials = (
        PicturedTrial(
            number=trial.number,
            end=trial.end,
            spans=tuple(
                Span(entry.from_s, entry.to_s, entry.gpus if entry.batch_size else 0)
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
    """Draw three charts of a study.

    Raises:
        SpecError: the file can't be written.
    """
    lines = min(max(len(study.trials) * _LINE_INCHES, 2.5), _MOST_INCHES)
    figure = new_figure(lines + 5.5)
    figure.suptitle(study.heading, x=0.01, ha="left", fontsize=13)
    trials, held, best = figure.subplots(3, height_ratios=[lines, 2.0, 2.5])
    time = TimeAxis(study)
    _trials(trials, study, time)
    _held(held, study, time)
    _best(best, study)
    save(figure, path)


class TimeAxis:
    """The horizontal axis of a study: its time, in the unit that suits it."""

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
        """Let it be the horizontal axis, with the rungs and the deadline on it."""
        for at_seconds in study.barriers_s:
            axes.axvline(at_seconds / self.unit, color=GREY, linewidth=0.8, linestyle=":")
        if self.deadline_s is not None:
            axes.axvline(self.deadline_s / self.unit, color=RED, linewidth=1.0, linestyle="--")
        elif study.deadline_s is not None:
            words = f"deadline after {format_duration(study.deadline_s)} "
            place = axes.transAxes
            axes.text(1.0, 0.98, words, color=RED, ha="right", va="top", transform=place)
        axes.set_xlim(0, self.last * 1.02)
        axes.set_xlabel(f"{self.word} since the start")


def _trials(axes: Axes, study: PicturedStudy, time: TimeAxis) -> None:
    used: set[int] = set()
    for trial in study.trials:
        for span in trial.spans:
            along = [(span.from_s / time.unit, (span.to_s - span.from_s) / time.unit)]
            doublings = min(span.devices.bit_length(), len(_DOUBLINGS)) - 1
            used |= {doublings} if span.devices else set()
            paint = _DOUBLINGS[doublings] if span.devices else "#E3E3E3"
            axes.broken_barh(along, (trial.number - 0.4, 0.8), facecolors=paint)
        if trial.reports:
            marks = [each.at_s / time.unit for each in trial.reports[-_MOST_MARKS:]]
            places = [trial.number] * len(marks)
            axes.plot(marks, places, "|", color="#333333", markersize=4, markeredgewidth=0.8)
            last = trial.reports[-1].at_s / time.unit
            axes.plot(last, trial.number, _ENDS.get(trial.end, "."), color=RED, markersize=4)
    for doublings in sorted(used):
        most = 2 ** (doublings + 1) - 1
        words = "1 device" if not doublings else f"{2**doublings} to {most} devices"
        axes.barh([0], [0], color=_DOUBLINGS[doublings], label=words)
    axes.barh([0], [0], color="#E3E3E3", label="boots, pauses, idle")
    for end, mark in _ENDS.items():
        if end in study.ends:
            axes.plot([], [], mark, color=RED, markersize=4, linestyle="", label=end)
    axes.set_title(
        "what each trial held; ticks its reports, dotted the barriers, dashed the deadline"
    )
    axes.set_ylabel("trial")
    axes.set_ylim(len(study.trials) - 0.5, -0.5)
    time.along(axes, study)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)


def _held(axes: Axes, study: PicturedStudy, time: TimeAxis) -> None:
    from matplotlib.ticker import MaxNLocator

    at = [level.at_s / time.unit for level in study.held]
    axes.step(at, [level.instances for level in study.held], where="post", color=COLOURS[0])
    released = [
        (after.at_s / time.unit, after.instances)
        for before, after in pairwise(study.held)
        if after.instances < before.instances
    ]
    if released:
        axes.plot(*zip(*released, strict=True), "v", color=RED, markersize=4, linestyle="")
    axes.set_title("instances held, of all trials; triangles: some were released")
    axes.set_ylabel("instances")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    time.along(axes, study)


def _best(axes: Axes, study: PicturedStudy) -> None:
    """The best value reported so far against what had been spent by then."""
    every = sorted(
        (report.at_s, report.value) for trial in study.trials for report in trial.reports
    )
    choose = max if study.maximize else min
    spent: list[float] = []
    best: list[float] = []
    for at_seconds, value in every:
        spent.append(spent_usd(study.held, at_seconds))
        best.append(choose(best[-1], value) if best else value)
    if every:
        axes.step([*spent, study.cost_usd], [*best, best[-1]], where="post", color=COLOURS[2])
    axes.set_title("the best value reported, against what was spent")
    axes.set_xlabel("US dollars")
    axes.set_ylabel("value")
    axes.set_xlim(left=0)


def spent_usd(held: Sequence[Level], until_seconds: float) -> float:
    """What instances have cost until then, but for what their clouds bill at least."""
    spent = 0.0
    for level, following in pairwise(held):
        lasted_seconds = min(following.at_s, until_seconds) - level.at_s
        spent += level.usd_per_hour * max(lasted_seconds, 0.0) / 3600
    return spent
