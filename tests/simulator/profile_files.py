"""Profile files of an invented application."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

APPLICATION = "toy"
BATCHES = (8, 16, 64)
# `placements` has all placements on up to 2 nodes of 4 devices; `scalability` has balanced ones on
# 4 and 8 nodes.
PLACEMENTS = ("1", "2", "3", "4", "11", "12", "13", "14", "22", "23", "24", "33", "34", "44")
SIZES = ((4, 4), (4, 8), (4, 16), (8, 8), (8, 16), (8, 32))


def step_row(nodes: int, devices: int, batch: int) -> str:
    """Return `local_bsz,step_time,sync_time` with times that differ between placements."""
    sync = 0.01 * nodes + 0.003 * devices
    return f"{batch},{0.02 + 0.001 * batch + sync},{sync}"


def placement_lines() -> Iterable[str]:
    yield "placement,local_bsz,step_time,sync_time"
    for placement in PLACEMENTS:
        for batch in BATCHES:
            row = step_row(len(placement), sum(map(int, placement)), batch)
            yield f"{placement},{row}"


def scalability_lines() -> Iterable[str]:
    yield "local_bsz,step_time,sync_time,num_nodes,num_replicas"
    for nodes, devices in SIZES:
        for batch in BATCHES:
            yield f"{step_row(nodes, devices, batch)},{nodes},{devices}"


# Runs at batch 16 and 64; the first epoch ends later at 64, so that the run at 16 sets its end.
RUNS = {
    16: ((100, 4.0, 8.0), (200, 2.0, 8.0), (300, 1.0, 8.0)),
    64: ((103, 8.0, 8.0), (199, 4.0, 16.0), (305, 0.0, 32.0)),
}


def run_lines(batch: int) -> Iterable[str]:
    yield "grad_var,grad_sqr,progress,iteration,metric"
    for progress, square, variance in RUNS[batch]:
        yield f"{variance},{square},{progress},{progress},0.5"


def write(directory: Path, kind: str = "") -> Path:
    """Write the profile of one application, with step times for one kind of device."""
    folder = directory / APPLICATION
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"placements{kind}.csv": placement_lines(),
        f"scalability{kind}.csv": scalability_lines(),
        **{f"validation-{batch}.csv": run_lines(batch) for batch in RUNS},
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder
