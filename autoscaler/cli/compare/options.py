"""Options of `castor compare`. The command imports `run` when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.cli.simulate.options import SimulateOptions, takes_scenario

Policies = Annotated[
    str, Option(help="Policies, as marginal,pollux,sia; the first is the baseline of ratios.")
]
Seeds = Annotated[int, Option(help="Runs of each policy, with seeds --seed, --seed + 1, ...")]
Workers = Annotated[int, Option(help="Number of runs in parallel, a process each.")]
Plot = Annotated[Path | None, Option(help="Draw the figures to FILE.png or FILE.svg.")]
JsonFile = Annotated[
    Path | None, Option("--json", help="Write all figures and totals to this file.")
]


# Runs differ by measurement errors, which the seed draws, so errors are not 0 by default here.
@takes_scenario(but=("policy",), step_error=0.05, noise_error=0.1)
def compare(
    options: SimulateOptions,
    policies: Policies,
    seeds: Seeds = 5,
    workers: Workers = 1,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Simulate a workload under several policies.

    Prints the mean of each figure with its 95 % confidence interval.
    """
    from autoscaler.cli.compare import run

    names = tuple(name.strip() for name in policies.split(",") if name.strip())
    compare_options = run.CompareOptions(names, seeds, workers)
    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.comparison import draw_comparison

        require_plots(plot)
    standings = run.run_comparison(options, compare_options)
    if plot is not None:
        draw_comparison(standings, options.title, seeds, plot)
    if json_file is not None:
        run.write_comparison(standings, json_file)
    run.print_comparison(standings)
