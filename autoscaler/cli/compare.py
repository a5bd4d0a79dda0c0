"""The words of `castor compare`; what it does is in `comparison`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.cli.simulate_options import SimulateOptions, takes_scenario

Policies = Annotated[
    str, Option(help="Who plan, as marginal,pollux,sia; the first is the measure.")
]
Seeds = Annotated[int, Option(help="How many runs of each, at seeds from --seed on.")]
Workers = Annotated[int, Option(help="In how many processes at a time.")]
Plot = Annotated[Path | None, Option(help="Draw the figures there: FILE.png or FILE.svg.")]
JsonFile = Annotated[Path | None, Option("--json", help="Write all figures and totals there.")]


# Seeds differ by what is measured, so measurements have errors here.
@takes_scenario(but=("policy",), step_error=0.05, noise_error=0.1)
def compare(
    options: SimulateOptions,
    policies: Policies,
    seeds: Seeds = 5,
    workers: Workers = 1,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Run a workload under several policies, and tell means with 95 % confidence intervals."""
    from autoscaler.cli import comparison

    names = tuple(name.strip() for name in policies.split(",") if name.strip())
    over = comparison.CompareOptions(names, seeds, workers)
    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.comparison import draw_comparison

        require_plots(plot)
    standings = comparison.run_comparison(options, over)
    if plot is not None:
        draw_comparison(standings, options.title, seeds, plot)
    if json_file is not None:
        comparison.write_comparison(standings, json_file)
    comparison.print_comparison(standings)
