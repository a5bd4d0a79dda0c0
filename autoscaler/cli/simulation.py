"""`castor simulate`: a workload under the real controller, on a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from autoscaler.cli.tables import money, number
from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles import Profile, read_profiles
from autoscaler.simulator.quirks import Quirks
from autoscaler.simulator.results import Result, as_document, result_of
from autoscaler.simulator.simulation import Scenario, Simulation, TimedPolicy
from autoscaler.simulator.training import TrainingSettings
from autoscaler.simulator.workload import Arrival, read_workload, require_applications
from autoscaler.spec.cluster_file import parse_cluster
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.offers_file import OffersFile, load_offers
from autoscaler.spec.quantities import format_duration
from autoscaler.store.store import Store, memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

_POOL_BYTES_PER_SECOND = 6.25e9


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What `castor simulate` was told."""

    workload: Path
    profiles: Sequence[Path]
    offers: Path | None = None
    cluster: str | None = None
    policy: str = "marginal"
    objective: str = "balanced"
    interval_seconds: float = 60.0
    restart_seconds: float = 1.0
    most_instances: int = 16
    step_error: float = 0.0
    noise_error: float = 0.0
    fleet_usd_per_hour: float | None = None
    seed: int = 0
    published: bool = False
    device_batches: Sequence[str] = ()


def run_simulation(options: SimulateOptions) -> Result:
    """Run a scenario, with a bar of the jobs that have ended.

    Raises:
        SpecError: what is to be simulated is wrong; the message names file and field.
    """
    market = _market(options)
    profiles = read_profiles(*options.profiles)
    arrivals = read_workload(options.workload)
    require_applications(arrivals, profiles)
    clock = VirtualClock()
    store = memory_store()
    cloud = _cloud(market, options.seed, store, clock)
    planner = create_policy(options.policy)
    policy = TimedPolicy(planner, SystemClock())
    is_pool = options.cluster is not None
    scenario = replace(
        _scenario(options, market, arrivals, profiles),
        replans_on_news=not is_pool,
        adapts_batch=getattr(planner, "adapts_batch", True),
    )
    simulation = Simulation(scenario, store, cloud, policy, clock)
    with _bar() as progress:
        task = progress.add_task(options.policy, total=len(arrivals))
        simulation.on_progress = lambda ran: progress.advance(task)
        run = simulation.run()
    offers = {offer.id: offer for offer in market.offers}
    return result_of(options.policy, options.seed, run, store, offers)


def write_result(result: Result, path: Path) -> None:
    """Keep the whole result as JSON."""
    try:
        path.write_text(json.dumps(as_document(result), indent=1) + "\n")
    except OSError as error:
        raise SpecError(f"{path} can't be written: {error.strerror}", "--json") from None


def print_result(result: Result, console: Console) -> None:
    """The totals, as a table."""
    totals = result.totals
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in (
        ("policy", result.policy),
        ("jobs", str(len(result.jobs))),
        ("average completion time", format_duration(totals.avg_jct_s)),
        ("99th percentile", format_duration(totals.p99_jct_s)),
        ("makespan", format_duration(totals.makespan_s)),
        ("spent", money(Decimal(totals.cost_usd))),
        ("device hours paid", number(totals.gpu_hours)),
        ("of them at work", f"{totals.gpu_utilisation:.0%}"),
        ("resizes", str(totals.restarts)),
        (
            "plans",
            f"{totals.decisions}, {totals.decision_ms_p50:.1f} ms each, "
            f"95th percentile {totals.decision_ms_p95:.1f} ms",
        ),
    ):
        table.add_row(name, value)
    console.print(table)


def _scenario(
    options: SimulateOptions,
    market: OffersFile,
    arrivals: tuple[Arrival, ...],
    profiles: dict[str, Profile],
) -> Scenario:
    return Scenario(
        arrivals=arrivals,
        profiles=profiles,
        equipment={
            offer.id: Equipment(offer, market.profile_kinds.get(offer.id, offer.device_kind))
            for offer in market.offers
        },
        objective=lambda now_seconds: parse_objective_text(options.objective, now_seconds),
        instances=InstanceBounds(maximum=options.most_instances),
        training=TrainingSettings(
            pause_seconds=options.restart_seconds,
            step_error=options.step_error,
            noise_error=options.noise_error,
            seed=options.seed,
            quirks=Quirks(
                lone_accumulation=options.published,
                epoch_uncounted=options.published,
                device_batches=_device_batches(options.device_batches),
            ),
        ),
        interval_seconds=options.interval_seconds,
        fleet_usd_per_hour=options.fleet_usd_per_hour,
    )


def _market(options: SimulateOptions) -> OffersFile:
    if (options.offers is None) == (options.cluster is None):
        raise SpecError("say what there is to train on: --offers FILE, or --cluster 16x4")
    if options.offers is not None:
        return load_offers(options.offers, 0.0)
    assert options.cluster is not None
    cluster = parse_cluster(options.cluster)
    machines = tuple(_machine(number, cluster.devices_per_node) for number in range(cluster.nodes))
    return OffersFile(machines, (), {}, {})


def _machine(number: int, devices: int) -> Offer:
    """One machine of a pool that is paid for already."""
    return Offer(
        id=f"node-{number:03}",
        provider="pool",
        instance_type="node",
        zone="pool",
        purchase=Purchase.RESERVED,
        devices=devices,
        device_kind="default",
        usd_per_hour=Decimal(0),
        boot_seconds=0.0,
        network_bytes_per_second=_POOL_BYTES_PER_SECOND,
        shared=True,
    )


def _device_batches(words: Sequence[str]) -> dict[str, int]:
    """`yolov3=8` and the like.

    Raises:
        SpecError: a word is none of these.
    """
    found = {}
    for word in words:
        application, _, number_of = word.partition("=")
        if not application or not number_of.isdigit() or int(number_of) < 1:
            raise SpecError(f'"{word}" is not like yolov3=8', "--device-batch")
        found[application] = int(number_of)
    return found


def _cloud(market: OffersFile, seed: int, store: Store, clock: VirtualClock) -> SimulatedProvider:
    settings = SimulatedSettings(offers=market.offers, limits=market.limits, seed=seed)
    return SimulatedProvider(SimulatedCloud(settings, clock), store.settings.controller_id())


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
