"""Runs and table of `castor simulate`: the real controller on a virtual clock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from autoscaler.cli.output import write_json
from autoscaler.cli.simulate.market import SimulatedMarket, read_market
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.study import as_the_study_says
from autoscaler.cli.simulate.work import SimulatedWork, read_work
from autoscaler.cli.study.tables import study_rows
from autoscaler.cli.tables import money, number, share
from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Offer
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy, require_ground
from autoscaler.simulator.profiles.coverage import profiled_maxima
from autoscaler.simulator.results import JobResult, Result, as_document, result_of
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Ran, Simulation, SimulationRun, TimedPolicy
from autoscaler.simulator.studies.study import SimulatedStudy
from autoscaler.simulator.time_meters import TimeMeters
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.training.published_compat import Quirks
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.quantities import format_duration
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.capacity import read_capacity_trace
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

_STOPPED_JOBS_SHOWN = 5
_STUDY_POLICY = "marginal"


def run_simulation(options: SimulateOptions, bars: Progress | None = None) -> Result:
    """Run a simulation, and show a progress bar of ended jobs.

    Args:
        options: options of the simulation.
        bars: progress display to add the bar to; None: a display of its own, and warnings about
            sizes that were not profiled.

    Raises:
        SpecError: an input is wrong; the message names file and field.
    """
    prepared = prepare(options)
    for line in prepared.size_warnings if bars is None else ():
        print(line, file=sys.stderr)
    with progress_bar() if bars is None else nullcontext(bars) as progress:
        task = progress.add_task(options.policy, total=prepared.jobs)
        try:
            return _run(prepared, lambda ran: progress.advance(task))
        finally:
            progress.remove_task(task)


@dataclass(frozen=True)
class PreparedSimulation:
    """Simulation whose inputs have been read and checked; `jobs` is the number of its jobs.

    `size_warnings` name offers whose number of instances is limited by the profiles.
    """

    options: SimulateOptions
    market: SimulatedMarket
    scenario: Scenario
    planner: Policy
    jobs: int = 0
    size_warnings: tuple[str, ...] = ()

    def begin(
        self,
        store: Store,
        clock: VirtualClock,
        policy: Policy | None = None,
        meters: TimeMeters | None = None,
    ) -> Simulation:
        """Return the simulation, whose workload and market begin at the present of `clock`.

        `policy` stands for the planner, None for the planner itself.
        """
        timed = TimedPolicy(policy or self.planner, SystemClock())
        cloud = _cloud(self.market, self.options.seed, store, clock)
        scenario = _begun(self.scenario, clock.now())
        return Simulation(scenario, store, cloud, timed, clock, meters)

    def result(self, run: SimulationRun, store: Store) -> Result:
        """Return the result of a run of this simulation."""
        offers = {offer.id: offer for offer in self.market.offers}
        return result_of(self.options.policy, self.options.seed, run, store, offers)


def prepare(options: SimulateOptions) -> PreparedSimulation:
    """Read and check the inputs of a simulation.

    Raises:
        SpecError: an input is wrong; the message names file and field.
    """
    options.check()
    options = as_the_study_says(options)
    work, market = read_work(options, read_market(options))
    planner = create_policy(options.policy)
    require_ground(options.policy, planner, is_pool=options.cluster is not None)
    warnings = _size_warnings(work, market, options.most_instances)
    scenario = _scenario(options, market, work, planner)
    return PreparedSimulation(options, market, scenario, planner, work.jobs, tuple(warnings))


def simulate_study(study: SimulatedStudy, market: SimulatedMarket, seed: int) -> Result:
    """Simulate a study under the default policy and default settings of a controller.

    Raises:
        Stuck: no trial gets an instance.
    """
    planner = create_policy(_STUDY_POLICY)
    pause_seconds = study.start_seconds or 0.0
    scenario = Scenario(
        arrivals=(),
        profiles={},
        equipment=market.equipment,
        objective=lambda now_seconds: study.job_objective,
        instances=study.instances,
        training=TrainingSettings(pause_seconds=pause_seconds, seed=seed),
        study=study,
    )
    options = SimulateOptions(policy=_STUDY_POLICY, seed=seed)
    return _run(PreparedSimulation(options, market, scenario, planner), lambda ran: None)


def write_result(result: Result, path: Path) -> None:
    """Write all jobs, timelines and totals to a JSON file."""
    write_json(as_document(result), path)


def print_result(result: Result, console: Console) -> None:
    """Print a table of totals, and the reasons of at most 5 stopped jobs."""
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = _rows(result) if result.study is None else study_rows(result, result.study)
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    stopped = [job for job in result.jobs if job.stopped is not None]
    for job in stopped[:_STOPPED_JOBS_SHOWN]:
        console.print(Text(f"{job.name} was stopped: {job.stopped}", style="yellow"))
    if len(stopped) > _STOPPED_JOBS_SHOWN:
        console.print(f"and {len(stopped) - _STOPPED_JOBS_SHOWN} more: --json FILE writes all")


def _rows(result: Result) -> dict[str, str]:
    totals, jobs = result.totals, result.jobs
    all_stopped = totals.stopped == len(jobs)
    is_free = totals.cost_usd == 0  # a pool that is already paid for
    rows = {
        "policy": result.policy,
        "jobs": str(len(jobs)),
        "stopped before their end": str(totals.stopped),
        "finished in time": _in_time(jobs),
        "average completion time": "-" if all_stopped else format_duration(totals.avg_jct_s),
        "99th percentile": "-" if all_stopped else format_duration(totals.p99_jct_s),
        "makespan": format_duration(totals.makespan_s),
        "spent": money(Decimal(totals.cost_usd)),
        "device hours held" if is_free else "device hours paid": number(totals.gpu_hours),
        "devices at work": f"{totals.gpu_utilisation:.0%}",
        "worst finish-time fairness": "-" if all_stopped else number(totals.worst_ftf_rho),
        "jobs treated unfairly": "-" if all_stopped else share(totals.unfair_share),
        "resizes": str(totals.restarts),
        "plans": f"{totals.decisions}, {totals.decision_ms_p50:.1f} ms each, "
        f"95th percentile {totals.decision_ms_p95:.1f} ms",
        "plans that failed": str(totals.failed_plans),
        "plans without the solver": str(totals.solver_failures),
    }
    hidden = {
        "stopped before their end": not totals.stopped,
        "finished in time": all(job.deadline_s is None for job in jobs),
        "spent": is_free,
        "plans that failed": not totals.failed_plans,
        "plans without the solver": not totals.solver_failures,
    }
    return {name: value for name, value in rows.items() if not hidden.get(name)}


def _in_time(jobs: Sequence[JobResult]) -> str:
    with_deadline = [job for job in jobs if job.deadline_s is not None]
    in_time = sum(
        job.stopped is None and job.finished_s <= (job.deadline_s or 0.0) for job in with_deadline
    )
    return f"{in_time} of {len(with_deadline)}"


def _scenario(
    options: SimulateOptions,
    market: SimulatedMarket,
    work: SimulatedWork,
    planner: Policy,
) -> Scenario:
    training = TrainingSettings(
        pause_seconds=options.restart_seconds,
        step_error=options.step_error,
        noise_error=options.noise_error,
        interference=options.interference,
        fills_batch=getattr(planner, "fills_batch", False),
        seed=options.seed,
        quirks=Quirks(
            lone_accumulation=options.published,
            batch_by_model=options.published,
            epoch_uncounted=options.published,
            interference_untold=options.published,
            device_batches=options.most_device_batches,
        ),
    )
    return Scenario(
        arrivals=work.arrivals,
        profiles=work.profiles,
        regimes=work.regimes,
        equipment=market.equipment,
        objective=lambda now_seconds: parse_objective_text(
            options.objective or "balanced", now_seconds
        ),
        instances=InstanceBounds(maximum=options.most_instances),
        training=training,
        of_application=market.settings_of_applications(training),
        is_profiled=market.is_profiled,
        interval_seconds=options.interval_seconds,
        replans_on_news=options.replans_on_news or not market.is_pool,
        adapts_batch=getattr(planner, "adapts_batch", True) and options.save_seconds is None,
        remembers=options.remembers,
        fleet_usd_per_hour=options.fleet_usd_per_hour,
        study=work.study,
        save_seconds=options.save_seconds,
    )


def _size_warnings(work: SimulatedWork, market: SimulatedMarket, most: int) -> list[str]:
    """Return a line for each offer whose number of instances is limited by the profiles."""
    bounded: dict[tuple[str, int], list[str]] = {}
    for application in sorted({arrival.application for arrival in work.arrivals}):
        profile = work.profiles.get(application)
        if profile is not None:
            for maximum in profiled_maxima(profile, market.equipment.values(), most):
                bounded.setdefault(maximum, []).append(application)
    return [
        f"at most {count} x {offer} for a job of {', '.join(names)}: larger sizes have no profile"
        for (offer, count), names in bounded.items()
    ]


def _run(prepared: PreparedSimulation, on_progress: Callable[[Ran], None]) -> Result:
    clock, store = VirtualClock(), memory_store()
    simulation = prepared.begin(store, clock)
    simulation.on_progress = on_progress
    return prepared.result(simulation.run(), store)


def _cloud(
    market: SimulatedMarket, seed: int, store: Store, clock: VirtualClock
) -> SimulatedProvider:
    begin_seconds = clock.now()
    capacity = {
        offer: read_capacity_trace(path).shifted(-begin_seconds)
        for offer, path in market.traces.items()
    }
    offers = tuple(_ending_after(offer, begin_seconds) for offer in market.offers)
    settings = SimulatedSettings(offers=offers, limits=market.limits, capacity=capacity, seed=seed)
    return SimulatedProvider(SimulatedCloud(settings, clock), store.settings.controller_id())


def _begun(scenario: Scenario, begin_seconds: float) -> Scenario:
    """Return a scenario whose times count from `begin_seconds`, not from 0."""
    arrivals = tuple(
        replace(arrival, submitted_seconds=arrival.submitted_seconds + begin_seconds)
        for arrival in scenario.arrivals
    )
    ends_seconds = scenario.ends_seconds
    if ends_seconds is not None:
        ends_seconds += begin_seconds
    return replace(scenario, arrivals=arrivals, ends_seconds=ends_seconds)


def _ending_after(offer: Offer, begin_seconds: float) -> Offer:
    """Return an offer whose end is counted from `begin_seconds`, not from 0."""
    if offer.until_seconds is None:
        return offer
    return replace(offer, until_seconds=offer.until_seconds + begin_seconds)


def progress_bar(is_shown: bool = True) -> Progress:
    """Return a progress display on standard error, which disappears at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not is_shown,
    )
