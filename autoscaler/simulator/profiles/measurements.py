"""Files of measured profiles, in the format that Pollux (OSDI'21) and Sia (SOSP'23) publish.

``placements-KIND.csv`` and ``scalability-KIND.csv`` hold step times; without ``-KIND`` the kind is
`DEFAULT_KIND`. ``validation-B.csv`` holds the gradient statistics of a run at batch B.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.simulator.profiles.gradients import EpochEnd, GradientStatistics, statistics_of
from autoscaler.simulator.profiles.rows import Row, read_rows
from autoscaler.simulator.profiles.step_times import (
    MeasuredSteps,
    Placement,
    ProfiledStepTimes,
    mean_of,
    normalised,
    table_of,
)

DEFAULT_KIND: Final = "default"

_TIMES: Final = ("local_bsz", "step_time", "sync_time")
_Size = tuple[int, int]


def read_steps(folder: Path, application: str) -> Iterator[MeasuredSteps]:
    """Yield the step times of one application on each kind of device in a folder.

    Raises:
        SpecError: a file is invalid, or a ``scalability`` file has no ``placements`` file.
    """
    placements, scalability = _by_kind(folder, "placements"), _by_kind(folder, "scalability")
    for kind, path in scalability.items():
        if kind not in placements:
            raise SpecError("has no placements file of its kind beside it", field=str(path))
    for kind, path in placements.items():
        measured = _read_placements(path)
        sizes: dict[_Size, dict[float, list[ProfiledStepTimes]]] = defaultdict(
            lambda: defaultdict(list)
        )
        if kind in scalability:
            _read_scalability(scalability[kind], sizes)
        for placement, times in measured.items():
            for device_batch, step_times in times.items():
                sizes[len(placement), sum(placement)][device_batch].append(step_times)
        yield MeasuredSteps(
            application,
            kind,
            placements={placement: table_of(times) for placement, times in measured.items()},
            sizes={
                size: table_of(
                    {batch: mean_of(measurements) for batch, measurements in times.items()}
                )
                for size, times in sizes.items()
            },
        )


def read_gradients(folders: Sequence[Path], application: str) -> GradientStatistics:
    """Return the gradient statistics of an application, from all its folders.

    Raises:
        SpecError: there are none, or a file is invalid.
    """
    paths: dict[int, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("validation*.csv")):
            batch = _batch_of(path)
            if batch in paths:
                raise SpecError(f"repeats batch {batch} of {paths[batch]}", field=str(path))
            paths[batch] = path
    if not paths:
        places = ", ".join(str(folder) for folder in folders)
        message = f"no validation-B.csv in {places}: name the directory that has them too"
        raise SpecError(message, field=application)
    runs = {batch: _read_run(path) for batch, path in paths.items()}
    epochs = max(len(run) for run in runs.values())
    for batch, run in runs.items():
        if len(run) < epochs:
            message = f"has {len(run)} epochs where another batch has {epochs}"
            raise SpecError(message, field=str(paths[batch]))
    return statistics_of(runs)


def _by_kind(folder: Path, name: str) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for path in sorted(folder.glob(f"{name}*.csv")):
        match = re.fullmatch(rf"{name}(?:-(.+))?\.csv", path.name)
        if match is None:
            raise SpecError(f"is neither {name}.csv nor {name}-KIND.csv", field=str(path))
        kind = match[1] or DEFAULT_KIND
        if kind in paths:
            raise SpecError(f"is of kind {kind!r} like {paths[kind].name}", field=str(path))
        paths[kind] = path
    return paths


def _batch_of(path: Path) -> int:
    match = re.fullmatch(r"validation-([1-9][0-9]*)\.csv", path.name)
    if match is None:
        raise SpecError("is not validation-B.csv with a batch size B", field=str(path))
    return int(match[1])


def _read_placements(path: Path) -> dict[Placement, dict[float, ProfiledStepTimes]]:
    measured: dict[Placement, dict[float, ProfiledStepTimes]] = defaultdict(dict)
    for row in read_rows(path, ("placement", *_TIMES)):
        digits = row.text("placement")
        if re.fullmatch("[1-9]+", digits) is None:
            raise row.error(
                "placement", f"{quoted(digits)} is not a digit from 1 to 9 for each node"
            )
        times = measured[normalised(tuple(int(digit) for digit in digits))]
        device_batch, step_times = _times(row)
        if device_batch in times:
            raise row.error("local_bsz", f"{device_batch:g} occurs twice for {digits}")
        times[device_batch] = step_times
    return measured


def _read_scalability(
    path: Path, sizes: dict[_Size, dict[float, list[ProfiledStepTimes]]]
) -> None:
    """Add the measurements of a file to `sizes`; a size may have several placements."""
    for row in read_rows(path, ("num_nodes", "num_replicas", *_TIMES)):
        nodes, devices = row.count("num_nodes"), row.count("num_replicas")
        if devices < nodes:
            raise row.error("num_replicas", f"{devices} devices can't be on {nodes} nodes")
        device_batch, step_times = _times(row)
        measurements = sizes[nodes, devices][device_batch]
        if step_times in measurements:
            raise row.error("step_time", "repeats an earlier row")
        measurements.append(step_times)


def _times(row: Row) -> tuple[float, ProfiledStepTimes]:
    """Return the device batch of a row, and its step times."""
    times = ProfiledStepTimes(row.positive("step_time"), row.not_negative("sync_time"))
    if times.sync_seconds >= times.step_seconds:
        message = f"{times.sync_seconds:g} is not below step_time={times.step_seconds:g}"
        raise row.error("sync_time", message)
    return row.positive("local_bsz"), times


def _read_run(path: Path) -> list[EpochEnd]:
    ends: list[EpochEnd] = []
    for row in read_rows(path, ("progress", "grad_sqr", "grad_var")):
        end = EpochEnd(
            row.positive("progress"),
            row.not_negative("grad_sqr"),
            row.not_negative("grad_var"),
            row.finite("metric") if "metric" in row.values else None,
        )
        if end.gradient_square == end.gradient_variance == 0:
            raise row.error("grad_sqr", "is 0, and so is grad_var: one of them must not be")
        if ends and end.progress_batches <= ends[-1].progress_batches:
            raise row.error("progress", f"{end.progress_batches:g} is not above the row before")
        ends.append(end)
    return ends
