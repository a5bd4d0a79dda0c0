"""Live table of the running jobs, sorted by cost, with what one more dollar would buy."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.tables import (
    amount,
    counted,
    instances_text,
    job_phase,
    money,
    number,
    progress_text,
    words_table,
)
from autoscaler.domain.errors import Unavailable
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.messages import FleetView, JobView

MARGINAL: Final = "marginal_goodput_per_usd_per_hour"
_REFRESH_SECONDS: Final = 2.0
_KEYS: Final = "keys: c cost  g goodput per $  m marginal goodput per $  n name  q quit"


def goodput_per_usd(job: JobView) -> float | None:
    """Return the useful examples a second for each dollar an hour; None if unknown."""
    goodput = job.goodput_measured
    if not goodput or not job.usd_per_hour:
        return None
    return goodput / float(job.usd_per_hour)


def marginal_per_usd(job: JobView) -> float | None:
    """Return the same for the next dollar, as the last decision compared it; None if unknown."""
    return None if job.decision is None else job.decision.figures.get(MARGINAL)


@dataclass(frozen=True, slots=True)
class TopJob:
    """Row of the table, for scripts; None: unknown.

    Goodput is in useful examples a second, measured. `progress` is a fraction of 1.
    """

    job: str
    person: str | None
    phase: str
    usd_per_hour: Decimal
    spent_usd: Decimal
    goodput: float | None
    goodput_per_usd_per_hour: float | None
    marginal_goodput_per_usd_per_hour: float | None
    progress: float | None
    eta_seconds: float | None


def top_jobs(jobs: Sequence[JobView]) -> tuple[TopJob, ...]:
    """Return the rows of the table, those that cost the most first."""
    return tuple(_top_job(job) for job in sorted(jobs, key=_ORDERS["c"]))


def _top_job(job: JobView) -> TopJob:
    report = job.report
    total = None if report is None else report.total_examples
    return TopJob(
        *(job.id, job.person, job_phase(job), job.usd_per_hour, job.spent_usd),
        job.goodput_measured,
        *(goodput_per_usd(job), marginal_per_usd(job)),
        min(report.progress_examples / total, 1.0) if report and total else None,
        job.eta_seconds,
    )


_ORDERS: Final[dict[str, Callable[[JobView], tuple[float, str]]]] = {
    "c": lambda job: (-float(job.usd_per_hour), job.id),
    "g": lambda job: (-(goodput_per_usd(job) or 0.0), job.id),
    "m": lambda job: (-(marginal_per_usd(job) or 0.0), job.id),
    "n": lambda job: (0.0, job.id),
}


def top_view(jobs: Sequence[JobView], fleet: FleetView, order: str = "c") -> RenderableType:
    """Return the table of jobs that have not ended; `order` is a key of the sort order."""
    table = words_table(
        *("job", "person", "phase", "instances", "$/h", "spent", "ex/s", "ex/s per $/h"),
        *("next $/h", "progress", "left"),
        wraps={"instances"},
        right={"$/h", "spent", "ex/s", "ex/s per $/h", "next $/h", "progress", "left"},
    )
    for job in sorted(jobs, key=_ORDERS[order]):
        goodput = job.goodput_measured
        table.add_row(
            job.id,
            job.person or "-",
            job_phase(job),
            instances_text(job),
            amount(job.usd_per_hour),
            money(job.spent_usd),
            _shown(goodput),
            _shown(goodput_per_usd(job)),
            _shown(marginal_per_usd(job)),
            progress_text(job),
            "-" if job.eta_seconds is None else format_duration(job.eta_seconds),
        )
    counts = f"{counted(len(jobs), 'job')} on {counted(len(fleet.instances), 'instance')}"
    body = table if jobs else Text("no job runs: castor submit starts one")
    return Group(Text(f"{counts}, {money(fleet.usd_per_hour)}/h", style="bold"), body)


def run_top(read: Callable[[], tuple[Sequence[JobView], FleetView]]) -> None:
    """Show the table until q is pressed; without a terminal print it once.

    While no controller answers, the last table stays, with the error below.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print_whole(top_view(*read()))
        return
    order, state = "c", read()
    note = _KEYS
    with (
        pressed_keys() as key,
        suppress(KeyboardInterrupt),
        Live(screen=True, auto_refresh=False) as live,
    ):
        while True:
            shown = Group(top_view(*state, order), Text(note, style="dim"))
            live.update(shown, refresh=True)
            pressed = key(_REFRESH_SECONDS)
            if pressed == "q":
                return
            order = pressed if pressed in _ORDERS else order
            try:
                state, note = read(), _KEYS
            except Unavailable as error:
                note = f"not up to date: {error}"


@contextmanager
def pressed_keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key for some seconds; it returns empty text for none."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)
