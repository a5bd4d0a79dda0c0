"""The words of `castor simulate`; what it does is in `simulation`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

if TYPE_CHECKING:
    from autoscaler.cli.simulate_options import SimulateOptions

Workload = Annotated[Path, Option(help="CSV, or .trace, of jobs and when they arrive.")]
Profiles = Annotated[
    list[Path] | None, Option(help="Directory of measured applications; may be repeated.")
]
Regimes = Annotated[
    Path | None, Option(help="Directory of the regimes of a .trace: rigid jobs on a pool.")
]
Offers = Annotated[Path | None, Option(help="YAML of what can be bought: an elastic cloud.")]
Cluster = Annotated[
    str | None, Option(help="A pool paid for already: machines x devices, as 16x4.")
]
Policy = Annotated[str, Option(help="Who plans.")]
ObjectiveText = Annotated[str, Option("--objective", help="Of every job: as for castor set.")]
Interval = Annotated[float, Option(help="Seconds between plans, at most.")]
Restart = Annotated[float, Option(help="What every change of a job's instances holds it up.")]
MaxInstances = Annotated[int, Option(help="Of each job.")]
StepError = Annotated[float, Option(help="Log standard deviation of measured step times.")]
NoiseError = Annotated[float, Option(help="Log standard deviation of measured noise scales.")]
Interference = Annotated[
    float, Option(help="Share of speed that a distributed job loses on a machine with another.")
]
FleetPrice = Annotated[float | None, Option(help="What all instances together may cost an hour.")]
Seed = Annotated[int, Option(help="The same seed gives the same run.")]
Published = Annotated[bool, Option(help="With the quirks of the published simulator of Pollux.")]
OnNews = Annotated[
    bool,
    Option("--on-news", help="Plan for a pool also when something happens, as in earnest."),
]
Remember = Annotated[
    bool, Option("--remember", help="What a job teaches is known to the next of its application.")
]
DeviceBatch = Annotated[
    list[str] | None,
    Option(help="The most examples on one device, as yolov3=8; may be repeated."),
]
Plot = Annotated[Path | None, Option(help="Draw the run there: FILE.png or FILE.svg.")]
JsonFile = Annotated[Path | None, Option("--json", help="Write each job and its timeline there.")]


def simulate(
    workload: Workload,
    profiles: Profiles = None,
    regimes: Regimes = None,
    offers: Offers = None,
    cluster: Cluster = None,
    policy: Policy = "marginal",
    objective: ObjectiveText = "balanced",
    interval: Interval = 60.0,
    restart_seconds: Restart = 1.0,
    max_instances: MaxInstances = 16,
    step_error: StepError = 0.0,
    noise_error: NoiseError = 0.0,
    interference: Interference = 0.0,
    fleet_usd_per_hour: FleetPrice = None,
    seed: Seed = 0,
    published: Published = False,
    device_batch: DeviceBatch = None,
    remember: Remember = False,
    on_news: OnNews = False,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Run a workload under the real controller, on a virtual clock and measured profiles."""
    from autoscaler.cli.simulate_options import SimulateOptions

    options = SimulateOptions(
        workload=workload,
        profiles=profiles or (),
        regimes=regimes,
        offers=offers,
        cluster=cluster,
        policy=policy,
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
        replans_on_news=on_news,
        device_batches=device_batch or (),
    )
    _simulate(options, plot, json_file)


def _simulate(options: SimulateOptions, plot: Path | None, json_file: Path | None) -> None:
    """Run, draw, write and print; that a picture can't be drawn is told before the run."""
    from rich.console import Console

    from autoscaler.cli import simulation

    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.simulation import draw_simulation
        from autoscaler.cli.simulated_market import read_market

        require_plots(plot)
    result = simulation.run_simulation(options)
    if plot is not None:
        draw_simulation(result, read_market(options).offers, options.workload.stem, plot)
    if json_file is not None:
        simulation.write_result(result, json_file)
    simulation.print_result(result, Console())
