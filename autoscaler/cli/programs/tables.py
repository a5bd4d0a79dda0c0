"""Tables of `castor programs`: measurements recorded for each program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.tables import number, words_table
from autoscaler.domain.goodput import NoiseCurve
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.spec.quantities import format_duration

_CURVE_ROWS = 8


def programs_table(memories: Sequence[ProgramMemory]) -> Table:
    """Return a table with a row for each program."""
    table = _table("program", "jobs", "measured on", "noise curve", "updated", right={"jobs"})
    for memory in memories:
        table.add_row(
            memory.program,
            str(memory.jobs),
            _measured_on(memory),
            "no" if memory.noise is None else "yes",
            local_time(memory.updated_seconds),
        )
    return table


def program_detail(memory: ProgramMemory) -> RenderableType:
    """Return all measurements of a program: step times, noise scales and start times."""
    jobs = f"{memory.jobs} jobs" if memory.jobs > 1 else "a job"
    total = memory.total_examples
    parts: list[RenderableType] = [
        Text(f"{memory.program}: measured by {jobs}, the last {memory.recent_jobs[0]}"),
        Text(
            f"identified by its initial batch of {memory.initial_batch} and its "
            f"{memory.parameter_bytes:,} bytes of gradients{_stages(memory.parallelism)}",
            style="dim",
        ),
    ]
    if total is not None:
        parts.append(Text(f"length: {number(total)} useful examples"))
    if memory.observations:
        parts += [Text(), _step_table(memory.observations)]
    if memory.noise is not None:
        parts += [Text(), _curve_table(memory.noise)]
    if memory.start_seconds:
        parts += [Text(), _starts_table(memory.start_seconds)]
    return Group(*parts)


def _stages(parallelism: ParallelismSpec) -> str:
    if parallelism.stages is None:
        return ""
    return f", in {parallelism.pipeline} stages of {parallelism.microbatches} microbatches"


def _measured_on(memory: ProgramMemory) -> str:
    """Return the kinds of device, each with its range of device counts; ``-`` if none."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for observation in memory.observations:
        sizes[observation.device_kind].add(observation.devices)
    return ", ".join(f"{kind} x {_range(sizes[kind])}" for kind in sorted(sizes)) or "-"


def _step_table(observations: Sequence[StepObservation]) -> Table:
    """Return a table with a row for each kind and size, with ranges of batch and step time."""
    table = _table("devices", "instances", "examples per device", "step", right={"instances"})
    of_size: dict[tuple[str, int, int], list[StepObservation]] = defaultdict(list)
    for observation in observations:
        of_size[observation.device_kind, observation.devices, observation.instances].append(
            observation
        )
    for (kind, devices, instances), alike in sorted(of_size.items()):
        batches = {
            observation.device_batch * (observation.accumulation + 1) for observation in alike
        }
        table.add_row(
            f"{devices} x {kind}",
            str(instances),
            _range(batches),
            f"{_range({observation.step_seconds for observation in alike})} s",
        )
    return table


def _curve_table(curve: NoiseCurve) -> Table:
    table = _table("useful examples", "noise scale", right={"useful examples", "noise scale"})
    points = list(zip(curve.progress_examples, curve.noise_examples, strict=True))
    rows = min(len(points), _CURVE_ROWS)
    for row in range(rows):
        progress, noise = points[row * (len(points) - 1) // max(rows - 1, 1)]
        table.add_row(number(progress), number(noise))
    return table


def _starts_table(start_seconds: Mapping[str, float]) -> Table:
    table = _table("offer", "launch to first step", right={"launch to first step"})
    for offer, seconds in sorted(start_seconds.items()):
        table.add_row(offer, format_duration(seconds))
    return table


def _table(*headings: str, right: set[str]) -> Table:
    return words_table(*headings, wraps=("measured on",), right=right)


def _range(values: set[int] | set[float]) -> str:
    least, most = number(min(values)), number(max(values))
    return least if least == most else f"{least} to {most}"


def local_time(seconds: float) -> str:
    """Return date and time in the local time zone."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
