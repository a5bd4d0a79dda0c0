"""Options of `castor simulate`. The command imports `run` when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.cli.simulate.options import SimulateOptions, takes_scenario

Plot = Annotated[Path | None, Option(help="Draw the run to FILE.png or FILE.svg.")]
JsonFile = Annotated[
    Path | None, Option("--json", help="Write each job and its timeline to this file.")
]


@takes_scenario()
def simulate(options: SimulateOptions, plot: Plot = None, json_file: JsonFile = None) -> None:
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
    result = run.run_simulation(options)
    if plot is not None and result.study is not None:
        draw_study(simulated_study(result, result.study), plot)
    elif plot is not None:
        draw_simulation(result, read_market(options).offers, options.title, plot)
    if json_file is not None:
        run.write_result(result, json_file)
    run.print_result(result, Console())
