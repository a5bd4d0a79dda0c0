"""Plot of `castor simulate --plot`: devices over time, cost and time of jobs, and decisions."""

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
# Words for the reason codes of `Decision.ground`.
GROUND_WORDS = {
    "first start": "first start",
    "holds unknown": "held offer not listed",
    "least cost": "least cost incl. waiting",
    "nothing allowed": "no allowed offer",
    "outbid": "other jobs gain more",
    "stages": "deadline or budget",
    "slowed by a shared budget": "slowed by a budget",
    "stops": "budget spent",
    "under way": "resize in progress",
    "unmeasured": "speed not measured",
}
# Runs shorter than this have a time axis in minutes.
_SHORT_SECONDS = 7200.0
# Series beyond this number are drawn as one.
_MOST_SERIES = 7
_OTHERS = "all others"
# Axes whose largest and smallest values differ by more than this factor are logarithmic.
_LOG_RATIO = 30.0

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")

_SeriesOf = Callable[[JobResult, TimelineEntry], str]


def draw_simulation(result: Result, offers: Sequence[Offer], title: str, path: Path) -> None:
    """Draw devices over time, cost against time of each job, and decisions over time.

    Raises:
        SpecError: the file can't be written.
    """
    figure = new_figure(10.5)
    heading = f"{title}: {len(result.jobs)} jobs under the policy {result.policy}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=13)
    allocation, jobs, decisions = figure.subplots(3)
    run = _Run(result)
    _draw_allocation(allocation, run, {offer.id: offer for offer in offers})
    _draw_jobs(jobs, run)
    _draw_decisions(decisions, run)
    save(figure, path)


class _Run:
    """Result of a run with its time axis.

    Attributes:
        unit: seconds in a unit of the time axis, with the name `word`.
        applications: names of the series of applications, by decreasing work.
    """

    def __init__(self, result: Result) -> None:
        self.result = result
        self.begin_seconds = min(job.submitted_s for job in result.jobs)
        self.end_seconds = max(max(job.finished_s for job in result.jobs), self.begin_seconds + 1)
        is_short = self.end_seconds - self.begin_seconds < _SHORT_SECONDS
        self.unit, self.word = (60.0, "minutes") if is_short else (3600.0, "hours")
        work: Counter[str] = Counter()
        for job in result.jobs:
            work[job.application] += round(job.gpu_seconds) + 1
        self.applications = _series_names(work)

    def along(self, axes: Axes) -> None:
        """Set the horizontal axis to the time of the whole run."""
        axes.set_xlim(self.begin_seconds / self.unit, self.end_seconds / self.unit)
        axes.set_xlabel(f"{self.word} since the start")


def _draw_allocation(axes: Axes, run: _Run, offers: Mapping[str, Offer]) -> None:
    dimension, series_of = _series(offers)
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
    names = run.applications if dimension == "application" else _series_names(weights)
    steps: dict[str, list[tuple[float, int]]] = {name: [] for name in names}
    for name, changes in held.items():
        steps[_series_name(name, names)].extend(changes)
    times = np.unique([time for changes in steps.values() for time, _ in changes])
    levels = [_level(steps[name], times) for name in names]
    axes.stackplot(
        times / run.unit, levels, labels=names, colors=_colours(names), step="post", linewidth=0
    )
    pool = sum(offer.devices for offer in offers.values() if offer.shared)
    if pool:
        axes.axhline(pool, color=GREY, linestyle="--", linewidth=1, label="devices of the pool")
    axes.set_title(f"devices at work, by {dimension}")
    axes.set_ylabel("devices")
    run.along(axes)
    _legend_beside(axes)


def _series(offers: Mapping[str, Offer]) -> tuple[str, _SeriesOf]:
    """Return the dimension by which allocations are grouped, and a function for its value.

    The dimension is the offer; on a pool the kind of device, or with one kind the application.
    """
    shared = {offer.device_kind for offer in offers.values() if offer.shared}
    if not shared:
        return "offer", lambda job, entry: "changing offer" if "+" in entry.offer else entry.offer
    if len(shared) == 1:
        return "application", lambda job, entry: job.application
    return "kind of device", lambda job, entry: offers[entry.offer.split("+")[0]].device_kind


def _level(changes: Sequence[tuple[float, int]], times: np.ndarray) -> np.ndarray:
    """Return the number of devices from each time on, with one value for each of `times`."""
    level = np.zeros(len(times))
    for time, devices in changes:
        level[np.searchsorted(times, time)] += devices
    return np.cumsum(level)


def _draw_jobs(axes: Axes, run: _Run) -> None:
    jobs, names = run.result.jobs, run.applications
    is_paid = any(job.cost_usd > 0 for job in jobs)
    for index, (name, colour) in enumerate(zip(names, _colours(names), strict=True)):
        jobs_of_series = [job for job in jobs if _series_name(job.application, names) == name]
        axes.plot(
            [job.completion_seconds / run.unit for job in jobs_of_series],
            [_cost(job, is_paid) for job in jobs_of_series],
            _MARKS[index % len(_MARKS)],
            color=colour,
            alpha=0.75,
            markersize=5,
            label=name,
        )
    quantity = "cost" if is_paid else "device hours"
    axes.set_title(f"each job: {quantity} against time to finish")
    axes.set_xlabel(f"{run.word} from submission to end")
    axes.set_ylabel("cost, US dollars" if is_paid else "device hours (pool already paid for)")
    _set_scale(axes, "x", [job.completion_seconds for job in jobs])
    _set_scale(axes, "y", [_cost(job, is_paid) for job in jobs])
    _legend_beside(axes)


def _cost(job: JobResult, is_paid: bool) -> float:
    return job.cost_usd if is_paid else job.gpu_seconds / 3600


def _draw_decisions(axes: Axes, run: _Run) -> None:
    decisions = run.result.decisions
    grounds = [GROUND_WORDS.get(decision.ground, decision.ground) for decision in decisions]
    words = [
        f"{decision.action}: {ground}".removesuffix(": ")
        for decision, ground in zip(decisions, grounds, strict=True)
    ]
    names = _series_names(Counter(words))
    width_seconds = bin_seconds(run.end_seconds - run.begin_seconds)
    bins = int(np.ceil((run.end_seconds - run.begin_seconds) / width_seconds))
    edges = (run.begin_seconds + width_seconds * np.arange(bins + 1)) / run.unit
    times = {name: list[float]() for name in names}
    for decision, word in zip(decisions, words, strict=True):
        times[_series_name(word, names)].append(decision.at_s / run.unit)
    if names:
        colours = _colours(names)
        axes.hist(list(times.values()), edges.tolist(), stacked=True, label=names, color=colours)
        _legend_beside(axes)
    axes.set_title("decisions, by action and reason")
    axes.set_ylabel(f"decisions in each {format_duration(width_seconds)}")
    run.along(axes)


def bin_seconds(run_seconds: float) -> float:
    """Return a round bin width in seconds, which divides the run into at most about 48 bins."""
    least = run_seconds / _BINS
    days = _DAY_SECONDS * np.ceil(least / _DAY_SECONDS)
    return next((float(seconds) for seconds in _ROUND_SECONDS if seconds >= least), float(days))


def _series_names(weights: Counter[str]) -> list[str]:
    """Return the 7 names of largest weight, and one name for all others."""
    names = [name for name, _ in weights.most_common(_MOST_SERIES)]
    return names if len(weights) <= _MOST_SERIES else [*names, _OTHERS]


def _series_name(name: str, names: Sequence[str]) -> str:
    return name if name in names else _OTHERS


def _colours(names: Sequence[str]) -> list[str]:
    return [GREY if name == _OTHERS else COLOURS[index] for index, name in enumerate(names)]


def _set_scale(axes: Axes, dimension: Literal["x", "y"], values: Sequence[float]) -> None:
    """Set an axis to start at 0, or to be logarithmic if values differ by a factor above 30."""
    least, most = min(values), max(values)
    axis = axes.xaxis if dimension == "x" else axes.yaxis
    if least > 0 and most / least > _LOG_RATIO:
        axes.set(**{f"{dimension}scale": "log"})
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    elif dimension == "x":
        axes.set_xlim(left=0)
    else:
        axes.set_ylim(bottom=0)


def _legend_beside(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
