"""Options of `castor simulate`. The command imports `run` when called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from autoscaler.cli.simulate.options import LEAST_PACE, MOST_PACE, SimulateOptions, takes_scenario

if TYPE_CHECKING:
    from autoscaler.simulator.results import Result

Plot = Annotated[Path | None, Option(help="Draw the run to FILE.png or FILE.svg.")]
JsonFile = Annotated[
    Path | None, Option("--json", help="Write each job and its timeline to this file.")
]
Serve = Annotated[
    bool, Option("--serve", help="Serve the pages of the simulated controller while it runs.")
]
Pace = Annotated[
    float,
    Option(min=LEAST_PACE, max=MOST_PACE, help="With --serve: simulated seconds in each second."),
]
Port = Annotated[
    int,
    Option(min=0, max=65_535, help="With --serve: port of the pages; 0 means any free port."),
]


@takes_scenario()
def simulate(
    options: SimulateOptions,
    plot: Plot = None,
    json_file: JsonFile = None,
    serve: Serve = False,
    pace: Pace = 120.0,
    port: Port = 0,
) -> None:
    """Simulate a workload or a study on a virtual clock.

    The real controller plans; instances and training are simulated.
    """
    from rich.console import Console

    from autoscaler.cli.simulate import run

    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.simulation import draw_simulation
        from autoscaler.cli.pictures.study import draw_study, simulated_study
        from autoscaler.cli.simulate.market import read_market

        require_plots(plot)
    result = _served(options, pace, port) if serve else run.run_simulation(options)
    if plot is not None and result.study is not None:
        draw_study(simulated_study(result, result.study), plot)
    elif plot is not None:
        draw_simulation(result, read_market(options).offers, options.title, plot)
    if json_file is not None:
        run.write_result(result, json_file)
    run.print_result(result, Console())


def _served(options: SimulateOptions, pace: float, port: int) -> Result:
    """Serve the pages of a simulation until it has ended and Ctrl-C is pressed."""
    import sys
    import threading
    from contextlib import suppress

    from autoscaler.cli.simulate.run import prepare
    from autoscaler.cli.simulate.serving import served

    prepared = prepare(options)
    for line in prepared.size_warnings:
        print(line, file=sys.stderr)
    with served(prepared, pace, port) as simulation:
        print(f"pages, for one browser within a minute: {simulation.link()}", file=sys.stderr)
        result = simulation.result.result()
        if sys.stdin.isatty():
            print("the simulation has ended; Ctrl-C ends the pages", file=sys.stderr)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
        return result
