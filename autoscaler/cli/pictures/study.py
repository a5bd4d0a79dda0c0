"""`castor simulate --study --plot`: what each trial held and when, and what the best has cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from autoscaler.cli.pictures.canvas import COLOURS, GREY, RED, new_figure, save
from autoscaler.simulator.results import JobResult, Result
from autoscaler.simulator.study_results import Level, StudyResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHORT_SECONDS = 7200.0
# So many trials have a line of this height each, in inches; of more they are thinner.
_MOST_INCHES, _LINE_INCHES = 9.0, 0.16
_ENDS = {"complete": "*", "pruned": "x", "stopped": "s"}
_DOUBLINGS = ("#BFD9EA", "#7FB3D5", "#3F8DC0", "#0072B2", "#004C78", "#002E4A", "#001827")


def draw_study(result: Result, study: StudyResult, path: Path) -> None:
    """Draw three charts of a study.

    Raises:
        SpecError: the file can't be written.
    """
    lines = min(max(len(study.trials) * _LINE_INCHES, 2.5), _MOST_INCHES)
    figure = new_figure(lines + 5.5)
    heading = f"{study.name}: {len(study.trials)} trials under the policy {result.policy}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=13)
    trials, held, best = figure.subplots(3, height_ratios=[lines, 2.0, 2.5])
    time = _Time(study)
    _trials(trials, result.jobs, study, time)
    _held(held, study, time)
    _best(best, study)
    save(figure, path)


class _Time:
    """The time of a study, in the unit that suits it."""

    def __init__(self, study: StudyResult) -> None:
        last = max(study.finished_s, study.deadline_s or 0.0)
        self.unit, self.word = (60.0, "minutes") if last < _SHORT_SECONDS else (3600.0, "hours")
        self.last = last / self.unit

    def along(self, axes: Axes, study: StudyResult) -> None:
        """Let it be the horizontal axis, with the rungs and the deadline on it."""
        for at_seconds in study.barriers_s:
            axes.axvline(at_seconds / self.unit, color=GREY, linewidth=0.8, linestyle=":")
        if study.deadline_s is not None:
            axes.axvline(study.deadline_s / self.unit, color=RED, linewidth=1.0, linestyle="--")
        axes.set_xlim(0, self.last * 1.02)
        axes.set_xlabel(f"{self.word} since the start")


def _trials(axes: Axes, jobs: Sequence[JobResult], study: StudyResult, time: _Time) -> None:
    by_name = {job.name: job for job in jobs}
    used: set[int] = set()
    for trial in study.trials:
        for entry in by_name[trial.job].timeline:
            span = [(entry.from_s / time.unit, (entry.to_s - entry.from_s) / time.unit)]
            doublings = min(entry.gpus.bit_length(), len(_DOUBLINGS)) - 1
            works = bool(entry.batch_size)
            used |= {doublings} if works else set()
            paint = _DOUBLINGS[doublings] if works else "#E3E3E3"
            axes.broken_barh(span, (trial.number - 0.4, 0.8), facecolors=paint)
        if trial.reports:
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
    axes.set_title("what each trial held; dotted the barriers, dashed the deadline")
    axes.set_ylabel("trial")
    axes.set_ylim(len(study.trials) - 0.5, -0.5)
    time.along(axes, study)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)


def _held(axes: Axes, study: StudyResult, time: _Time) -> None:
    at = [level.at_s / time.unit for level in study.held]
    axes.step(at, [level.instances for level in study.held], where="post", color=COLOURS[0])
    axes.set_title("instances held, of all trials")
    axes.set_ylabel("instances")
    axes.set_ylim(bottom=0)
    time.along(axes, study)


def _best(axes: Axes, study: StudyResult) -> None:
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
