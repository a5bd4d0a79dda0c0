"""`castor simulate`: a workload under the real controller, on a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from autoscaler.spec.cluster_file import MixedCluster, NodeGroup, load_cluster, parse_cluster
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.offers_file import OffersFile, load_offers
from autoscaler.spec.quantities import format_duration
from autoscaler.store.store import Store, memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

_POOL_BYTES_PER_SECOND = 6.25e9
# Profiles whose files name no kind of device are of this one.
_ONLY_KIND = "default"


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
    _check(options)
    market = _market(options)
    profiles = read_profiles(*options.profiles)
    arrivals = read_workload(options.workload)
    require_applications(arrivals, profiles)
    _require_kinds(market, arrivals, profiles)
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
    training = TrainingSettings(
        pause_seconds=options.restart_seconds,
        step_error=options.step_error,
        noise_error=options.noise_error,
        seed=options.seed,
        quirks=Quirks(
            lone_accumulation=options.published,
            epoch_uncounted=options.published,
            device_batches=_device_batches(options.device_batches),
        ),
    )
    return Scenario(
        arrivals=arrivals,
        profiles=profiles,
        equipment={
            offer.id: Equipment(offer, market.profile_kinds.get(offer.id, offer.device_kind))
            for offer in market.offers
        },
        objective=lambda now_seconds: parse_objective_text(options.objective, now_seconds),
        instances=InstanceBounds(maximum=options.most_instances),
        training=training,
        of_application=_of_application(options, training),
        interval_seconds=options.interval_seconds,
        fleet_usd_per_hour=options.fleet_usd_per_hour,
    )


def _check(options: SimulateOptions) -> None:
    least = {
        "--interval": (options.interval_seconds, 1.0),
        "--restart-seconds": (options.restart_seconds, 0.0),
        "--max-instances": (options.most_instances, 1),
        "--step-error": (options.step_error, 0.0),
        "--noise-error": (options.noise_error, 0.0),
        "--seed": (options.seed, 0),
    }
    for option, (value, minimum) in least.items():
        if not minimum <= value < float("inf"):
            raise SpecError(f"{value} must be at least {minimum:g}", option)


def _require_kinds(
    market: OffersFile, arrivals: Sequence[Arrival], profiles: Mapping[str, Profile]
) -> None:
    for offer in market.offers:
        kind = market.profile_kinds.get(offer.id, offer.device_kind)
        for application in sorted({arrival.application for arrival in arrivals}):
            known = profiles[application].kinds
            if kind not in known:
                raise SpecError(
                    f"{application} was not profiled on {kind}, but on {', '.join(sorted(known))}"
                    ": say which of these its devices are (profile: KIND), or leave it out",
                    f"offers.{offer.id}",
                )


def _market(options: SimulateOptions) -> OffersFile:
    if (options.offers is None) == (options.cluster is None):
        raise SpecError("say what there is to train on: --offers FILE, or --cluster 16x4")
    if options.offers is not None:
        return load_offers(options.offers, 0.0)
    nodes = [group for group in _cluster(options).nodes for _ in range(group.count)]
    machines = tuple(_machine(number, node) for number, node in enumerate(nodes))
    return OffersFile(machines, (), {}, {})


def _cluster(options: SimulateOptions) -> MixedCluster:
    """The pool, of one kind of machine or as a file has it."""
    assert options.cluster is not None
    if options.cluster.endswith((".yaml", ".yml")):
        return load_cluster(Path(options.cluster))
    cluster = parse_cluster(options.cluster)
    group = NodeGroup(_ONLY_KIND, cluster.nodes, cluster.devices_per_node)
    return MixedCluster((group,), {}, {})


def _of_application(
    options: SimulateOptions, common: TrainingSettings
) -> dict[str, TrainingSettings]:
    """What the file of a pool says of each application."""
    if options.cluster is None:
        return {}
    cluster = _cluster(options)
    return {
        application: replace(
            common,
            pause_seconds=cluster.restart_seconds.get(application, common.pause_seconds),
            slowdown=cluster.slowdown.get(application, common.slowdown),
        )
        for application in {*cluster.restart_seconds, *cluster.slowdown}
    }


def _machine(number: int, node: NodeGroup) -> Offer:
    """One machine of a pool that is paid for already."""
    return Offer(
        id=f"node-{number:03}",
        provider="pool",
        instance_type="node",
        zone="pool",
        purchase=Purchase.RESERVED,
        devices=node.devices,
        device_kind=node.kind,
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
