"""Second part of the demo: a simulated cloud, and what others would have paid there.

The real controller grows and shrinks the jobs of `examples/simulation` on a simulated cloud, while
its pages are served. The same jobs then run under scaling by throughput per dollar, and on fixed
pools, of which the best is known only afterwards. Profiles and jobs are made up: a working day
with jobs in the morning, at noon and in the evening. Prices are those of the built-in catalogue.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from autoscaler.cli.demo.paid_run import VALUE_OF_TIME, PaidRun
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.tables import number
from autoscaler.domain.errors import SpecError

if TYPE_CHECKING:
    from autoscaler.cli.simulate.serving import ServedSimulation
    from autoscaler.simulator.results import Result

_PACE: Final = 300.0  # simulated seconds a second: eleven hours in two minutes and a half
_HOUR: Final = 3600.0
# Machines of each pool: those with 4 T4, and those with 8 A100.
_POOLS: Final = ((4, 0), (0, 1), (0, 2), (4, 1), (4, 2))
_DEVICES: Final = {"t4": 4, "a100": 8}


def options_of(examples: Path, **changes: object) -> SimulateOptions:
    """Return the options of the demo's simulation, on the elastic cloud unless changed."""
    folder = examples / "simulation"
    options = SimulateOptions(
        workload=folder / "day.csv",
        profiles=[folder / "profiles"],
        offers=folder / "offers.yaml",
        objective=f"value_of_time={VALUE_OF_TIME:g}",
    )
    return replace(options, **changes)  # type: ignore[arg-type]


@contextmanager
def simulated_cloud(examples: Path) -> Iterator[ServedSimulation]:
    """Run the simulation at a pace that a person can watch, and serve its pages."""
    from autoscaler.cli.simulate.run import prepare
    from autoscaler.cli.simulate.serving import served

    with served(prepare(options_of(examples)), _PACE) as simulation:
        yield simulation


def paid_run(result: Result, name: str) -> PaidRun:
    """Return dollars and hours of a run on the elastic cloud."""
    totals = result.totals
    return PaidRun(name, totals.cost_usd, totals.avg_jct_s / _HOUR, len(result.jobs))


def others(examples: Path) -> tuple[PaidRun, ...]:
    """Return the runs of scaling by throughput, and of all fixed pools."""
    from autoscaler.cli.simulate.market import read_market

    market = read_market(options_of(examples))
    prices = {
        item.profile_kind: float(item.offer.usd_per_hour) for item in market.equipment.values()
    }
    with ProcessPoolExecutor() as processes:
        throughput = processes.submit(_scaled_by_throughput, examples)
        pools = [processes.submit(_on_pool, examples, pool, prices) for pool in _POOLS]
        return (throughput.result(), *(pool.result() for pool in pools))


def _scaled_by_throughput(examples: Path) -> PaidRun:
    result = _simulated(options_of(examples, policy="throughput"))
    return paid_run(result, "scaling by throughput per dollar")


def _on_pool(examples: Path, counts: tuple[int, int], prices: Mapping[str, float]) -> PaidRun:
    """Return the run on a pool that is paid for from the first job to the last end."""
    machines = [
        (kind, devices, count)
        for (kind, devices), count in zip(_DEVICES.items(), counts, strict=True)
        if count
    ]
    nodes = [
        f"  - {{kind: {kind}, count: {count}, devices: {devices}}}\n"
        for kind, devices, count in machines
    ]
    with tempfile.TemporaryDirectory() as directory:
        pool = Path(directory) / "pool.yaml"
        pool.write_text("nodes:\n" + "".join(nodes))
        result = _simulated(options_of(examples, offers=None, cluster=str(pool)))
    usd_per_hour = sum(prices[kind] * count for kind, _, count in machines)
    name = " and ".join(f"{count} x {devices} {kind.upper()}" for kind, devices, count in machines)
    totals = result.totals
    usd = usd_per_hour * totals.makespan_s / _HOUR
    return PaidRun(name, usd, totals.avg_jct_s / _HOUR, len(result.jobs), is_pool=True)


def _simulated(options: SimulateOptions) -> Result:
    from rich.progress import Progress

    from autoscaler.cli.simulate.run import run_simulation

    return run_simulation(options, Progress(disable=True))


def print_value(console: Console, castor: PaidRun, rivals: tuple[PaidRun, ...]) -> None:
    """Print dollars and hours of Castor, of scaling by throughput and of the best fixed pool."""
    pools = [rival for rival in rivals if rival.is_pool]
    best = min(pools, key=lambda pool: pool.priced_usd)
    table = Table(box=None, pad_edge=False)
    for heading in ("simulated cloud", "dollars", "hours a job", "dollars with waiting", ""):
        table.add_column(heading, justify="left" if heading == "simulated cloud" else "right")
    shown = (
        castor,
        *(rival for rival in rivals if not rival.is_pool),
        replace(best, name=f"best of {len(pools)} fixed pools in hindsight: {best.name}"),
    )
    for run in shown:
        more = run.priced_usd / castor.priced_usd - 1
        table.add_row(
            run.name,
            f"{run.usd:,.0f}",
            f"{run.mean_hours:.1f}",
            f"{run.priced_usd:,.0f}",
            "" if run is castor else f"{more:+.0%}",
        )
    console.print(table)
    console.print(
        f"an hour of waiting for a job costs {number(VALUE_OF_TIME)} dollars; a fixed pool is "
        "paid from the first job to the last end, and shared by the same policy",
        highlight=False,
    )


def draw_if_possible(
    path: Path, castor: PaidRun, rivals: tuple[PaidRun, ...], console: Console
) -> None:
    """Draw dollars against hours to a file, or say what is missing for it."""
    from autoscaler.cli.pictures.canvas import require_plots

    try:
        require_plots(path)
    except SpecError as error:
        console.print(f"no picture: {error}", highlight=False, soft_wrap=True)
        return
    from autoscaler.cli.pictures.value import draw_value

    draw_value(castor, rivals, VALUE_OF_TIME, path)
    console.print(f"picture: {path}", highlight=False, soft_wrap=True)
