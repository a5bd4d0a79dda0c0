"""`castor simulate --plot`: who held what and when, what jobs cost and took, what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from autoscaler.cli.pictures.canvas import COLOURS, GREY, new_figure, save
from autoscaler.domain.offer import Offer
from autoscaler.simulator.results import JobResult, Result
from autoscaler.simulator.timeline import TimelineEntry
from autoscaler.spec.quantities import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 48
_DAY_SECONDS = 86400.0
_ROUND_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
# What a policy calls its grounds (`Decision.ground`), in words that need no other reading.
GROUND_WORDS = {
    "first start": "it has not run yet",
    "holds unknown": "what it holds is not offered",
    "least cost": "cheapest, waiting counted",
    "nothing allowed": "nothing that it may have",
    "outbid": "others gain more by it",
    "stages": "its deadline or budget",
    "stops": "its budget is spent",
    "under way": "a change is under way",
    "unmeasured": "to measure what it holds",
}
# Runs that are shorter are told in minutes.
_SHORT_SECONDS = 7200.0
# More series than these are told together.
_MOST_SERIES = 7
_OTHERS = "all others"
# Beyond this ratio of the largest to the smallest an axis counts in powers of ten.
_WIDE = 30.0

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")

_SeriesOf = Callable[[JobResult, TimelineEntry], str]


def draw_simulation(result: Result, offers: Sequence[Offer], title: str, path: Path) -> None:
    """Draw three charts of a run.

    Raises:
        SpecError: the file can't be written.
    """
    figure = new_figure(10.5)
    heading = f"{title}: {len(result.jobs)} jobs under the policy {result.policy}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=13)
    allocation, jobs, decisions = figure.subplots(3)
    run = _Run(result)
    _allocation(allocation, run, {offer.id: offer for offer in offers})
    _jobs(jobs, run)
    _decisions(decisions, run)
    save(figure, path)


class _Run:
    """A result, and the unit of time that suits it."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.begin_seconds = min(job.submitted_s for job in result.jobs)
        self.end_seconds = max(max(job.finished_s for job in result.jobs), self.begin_seconds + 1)
        is_short = self.end_seconds - self.begin_seconds < _SHORT_SECONDS
        self.unit, self.word = (60.0, "minutes") if is_short else (3600.0, "hours")
        work: Counter[str] = Counter()
        for job in result.jobs:
            work[job.application] += round(job.gpu_seconds) + 1
        self.applications = _told_apart(work)

    def along(self, axes: Axes) -> None:
        """Let the horizontal axis be the time of the whole run."""
        axes.set_xlim(self.begin_seconds / self.unit, self.end_seconds / self.unit)
        axes.set_xlabel(f"{self.word} since the start")


def _allocation(axes: Axes, run: _Run, offers: Mapping[str, Offer]) -> None:
    what, series_of = _series(offers)
    held: dict[str, list[tuple[float, int]]] = {}
    weights: Counter[str] = Counter()
    for job in run.result.jobs:
        for entry in job.timeline:
            if not entry.gpus:
                continue
            name = series_of(job, entry)
            ends = ((entry.from_s, entry.gpus), (entry.to_s, -entry.gpus))
            held.setdefault(name, []).extend(ends)
            weights[name] += round(entry.gpus * (entry.to_s - entry.from_s)) + 1
    names = run.applications if what == "application" else _told_apart(weights)
    steps: dict[str, list[tuple[float, int]]] = {name: [] for name in names}
    for name, changes in held.items():
        steps[_name(name, names)].extend(changes)
    times = np.unique([at for changes in steps.values() for at, _ in changes])
    levels = [_level(steps[name], times) for name in names]
    axes.stackplot(
        times / run.unit, levels, labels=names, colors=_colours(names), step="post", linewidth=0
    )
    pool = sum(offer.devices for offer in offers.values() if offer.shared)
    if pool:
        axes.axhline(pool, color=GREY, linestyle="--", linewidth=1, label="all there are")
    axes.set_title(f"devices at work, by {what}")
    axes.set_ylabel("devices")
    run.along(axes)
    _legend_beside(axes)


def _series(offers: Mapping[str, Offer]) -> tuple[str, _SeriesOf]:
    """What tells allocations apart: the offer; on a pool its kinds of device, or the work."""
    shared = {offer.device_kind for offer in offers.values() if offer.shared}
    if not shared:
        return "offer", lambda job, entry: "while moving" if "+" in entry.offer else entry.offer
    if len(shared) == 1:
        return "application", lambda job, entry: job.application
    return "kind of device", lambda job, entry: offers[entry.offer.split("+")[0]].device_kind


def _level(changes: Sequence[tuple[float, int]], times: np.ndarray) -> np.ndarray:
    """Devices from each of the times on."""
    level = np.zeros(len(times))
    for at, devices in changes:
        level[np.searchsorted(times, at)] += devices
    return np.cumsum(level)


def _jobs(axes: Axes, run: _Run) -> None:
    jobs, names = run.result.jobs, run.applications
    is_paid = any(job.cost_usd > 0 for job in jobs)
    for place, (name, paint) in enumerate(zip(names, _colours(names), strict=True)):
        own = [job for job in jobs if _name(job.application, names) == name]
        axes.plot(
            [job.completion_seconds / run.unit for job in own],
            [_paid(job, is_paid) for job in own],
            _MARKS[place % len(_MARKS)],
            color=paint,
            alpha=0.75,
            markersize=5,
            label=name,
        )
    what = "cost" if is_paid else "device hours"
    axes.set_title(f"each job: {what} against time to finish")
    axes.set_xlabel(f"{run.word} from submission to end")
    axes.set_ylabel("cost, US dollars" if is_paid else "device hours (the pool is paid for)")
    _scale(axes, "x", [job.completion_seconds for job in jobs])
    _scale(axes, "y", [_paid(job, is_paid) for job in jobs])
    _legend_beside(axes)


def _paid(job: JobResult, is_paid: bool) -> float:
    return job.cost_usd if is_paid else job.gpu_seconds / 3600


def _decisions(axes: Axes, run: _Run) -> None:
    decisions = run.result.decisions
    grounds = [GROUND_WORDS.get(each.ground, each.ground) for each in decisions]
    words = [
        f"{each.action}: {ground}".removesuffix(": ")
        for each, ground in zip(decisions, grounds, strict=True)
    ]
    names = _told_apart(Counter(words))
    width_seconds = bin_seconds(run.end_seconds - run.begin_seconds)
    bins = int(np.ceil((run.end_seconds - run.begin_seconds) / width_seconds))
    edges = (run.begin_seconds + width_seconds * np.arange(bins + 1)) / run.unit
    at = {name: list[float]() for name in names}
    for each, word in zip(decisions, words, strict=True):
        at[_name(word, names)].append(each.at_s / run.unit)
    if names:
        colours = _colours(names)
        axes.hist(list(at.values()), edges.tolist(), stacked=True, label=names, color=colours)
        _legend_beside(axes)
    axes.set_title("decisions, by what is done with a job and why")
    axes.set_ylabel(f"decisions in each {format_duration(width_seconds)}")
    run.along(axes)


def bin_seconds(run_seconds: float) -> float:
    """A round length of time, of which about `_BINS` make the run."""
    wanted = run_seconds / _BINS
    days = _DAY_SECONDS * np.ceil(wanted / _DAY_SECONDS)
    return next((float(each) for each in _ROUND_SECONDS if each >= wanted), float(days))


def _told_apart(weights: Counter[str]) -> list[str]:
    """The names of most weight, those left over as one."""
    names = [name for name, _ in weights.most_common(_MOST_SERIES)]
    return names if len(weights) <= _MOST_SERIES else [*names, _OTHERS]


def _name(name: str, names: Sequence[str]) -> str:
    return name if name in names else _OTHERS


def _colours(names: Sequence[str]) -> list[str]:
    return [GREY if name == _OTHERS else COLOURS[place] for place, name in enumerate(names)]


def _scale(axes: Axes, which: Literal["x", "y"], values: Sequence[float]) -> None:
    """From 0, or in powers of ten where it takes those."""
    least, most = min(values), max(values)
    axis = axes.xaxis if which == "x" else axes.yaxis
    if least > 0 and most / least > _WIDE:
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    elif which == "x":
        axes.set_xlim(left=0)
    else:
        axes.set_ylim(bottom=0)


def _legend_beside(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
