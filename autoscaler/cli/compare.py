"""The words of `castor compare`; what it does is in `comparison`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.cli import simulate as words

Policies = Annotated[
    str, Option(help="Who plan, as marginal,pollux,sia; the first is the measure.")
]
Seeds = Annotated[int, Option(help="How many runs of each, at seeds from --seed on.")]
Workers = Annotated[int, Option(help="In how many processes at a time.")]
Plot = Annotated[Path | None, Option(help="Draw the figures there: FILE.png or FILE.svg.")]
JsonFile = Annotated[Path | None, Option("--json", help="Write all figures and totals there.")]


def compare(
    workload: words.Workload,
    policies: Policies,
    profiles: words.Profiles = None,
    regimes: words.Regimes = None,
    offers: words.Offers = None,
    cluster: words.Cluster = None,
    seeds: Seeds = 5,
    workers: Workers = 1,
    objective: words.ObjectiveText = "balanced",
    interval: words.Interval = 60.0,
    restart_seconds: words.Restart = 1.0,
    max_instances: words.MaxInstances = 16,
    step_error: words.StepError = 0.05,
    noise_error: words.NoiseError = 0.1,
    interference: words.Interference = 0.0,
    fleet_usd_per_hour: words.FleetPrice = None,
    seed: words.Seed = 0,
    published: words.Published = False,
    device_batch: words.DeviceBatch = None,
    remember: words.Remember = False,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Run a workload under several policies, and tell means with 95 % confidence intervals."""
    from autoscaler.cli import comparison
    from autoscaler.cli.simulate_options import SimulateOptions

    options = SimulateOptions(
        workload=workload,
        profiles=profiles or (),
        regimes=regimes,
        offers=offers,
        cluster=cluster,
        objective=objective,
        interval_seconds=interval,
        restart_seconds=restart_seconds,
        most_instances=max_instances,
        step_error=step_error,
        noise_error=noise_error,
        interference=interference,
        fleet_usd_per_hour=fleet_usd_per_hour,
        seed=seed,
        published=published,
        remembers=remember,
        device_batches=device_batch or (),
    )
    names = tuple(name.strip() for name in policies.split(",") if name.strip())
    over = comparison.CompareOptions(names, seeds, workers)
    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.comparison import draw_comparison

        require_plots(plot)
    standings = comparison.run_comparison(options, over)
    if plot is not None:
        draw_comparison(standings, workload.stem, seeds, plot)
    if json_file is not None:
        comparison.write_comparison(standings, json_file)
    comparison.print_comparison(standings)
