"""Assembly of a controller from its parts, the same for real and simulated deployments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.controller.act.idle_instances import IdleInstances
from autoscaler.controller.act.intents import (
    IntentExecutor,
    Lighthouses,
    launch_token,
)
from autoscaler.controller.act.job_failures import JobFailures
from autoscaler.controller.act.job_lifecycle import JobLifecycle
from autoscaler.controller.act.reconciler import Reconciler
from autoscaler.controller.budgets.accounts import BudgetAccounts
from autoscaler.controller.budgets.guard import Budgets, LaunchGate
from autoscaler.controller.budgets.spending import Spending
from autoscaler.controller.clock_jumps import LoopTime
from autoscaler.controller.controller import Controller
from autoscaler.controller.observe.instance_sync import Observer
from autoscaler.controller.offers.market import Market
from autoscaler.controller.offers.rounds import ProviderRounds
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import CallWorkers, SharedWorkers, Workers
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.snapshot import GroundTruth
from autoscaler.policies.base import Policy
from autoscaler.spans import SpanOpener, no_span
from autoscaler.store.store import Store
from providers.base import Provider


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """Parts that differ between deployments.

    `workers` run lighthouses. `call_workers` make the calls to providers. With None, providers are
    asked inline, `workers` make launches too, and `termination_workers` end instances, which are
    `workers` if None. This is right only where no call can hang.

    `user_data` returns the user data of an instance. `on_outcome` is called after each provider
    call, `on_hand_over` with each instance handed over to another job, and `on_capacity` with each
    queued instance whose cloud found capacity, and `on_console` with the console output of an
    instance that did not start. `truth` returns a simulation's true model of a job.
    `files_network` is the network of the storage with jobs' files; None without cloud storage.
    `require_lead` raises `NotLeading` if this controller may call no cloud. `span` opens the spans
    of ticks and calls.
    """

    store: Store
    providers: Mapping[str, Provider]
    policy: Policy
    lighthouses: Lighthouses
    workers: Workers
    clock: Clock
    user_data: Callable[[HeldInstance], str]
    termination_workers: Workers | None = None
    call_workers: CallWorkers | None = None
    on_outcome: Callable[[], None] = lambda: None
    on_hand_over: Callable[[str], None] = lambda instance: None
    on_capacity: Callable[[HeldInstance], None] = lambda held: None
    on_console: Callable[[HeldInstance, str], None] = lambda held, text: None
    truth: Callable[[str], GroundTruth | None] = lambda job: None
    files_network: str | None = None
    require_lead: Callable[[], None] = lambda: None
    span: SpanOpener = no_span


def assemble(parts: ControllerParts, settings: ControllerSettings) -> Controller:
    """Return a controller with these parts, which has not ticked yet."""
    store, clock = parts.store, parts.clock
    time = LoopTime(clock)
    workers = parts.call_workers or SharedWorkers(
        parts.workers, parts.termination_workers or parts.workers
    )
    rounds = ProviderRounds(
        parts.providers,
        clock,
        settings.listing_seconds,
        workers,
        parts.on_outcome,
    )
    market = Market(
        parts.providers,
        settings.fleet_usd_per_hour,
        settings.discounts,
        parts.files_network,
        rounds,
        parts.require_lead,
    )
    controller_id = store.settings.controller_id()
    spending = Spending(store)
    accounts = BudgetAccounts(store, settings.replan_seconds)
    budgets = Budgets(store, spending, settings.fleet_usd, accounts)
    gate_budgets = Budgets(store, spending.always_fresh(), settings.fleet_usd, accounts)
    gate = LaunchGate(store, settings, gate_budgets)
    calls = IntentExecutor(store, market, parts.lighthouses, workers, gate, parts.user_data, clock)
    calls.on_outcome, calls.span = parts.on_outcome, parts.span
    idle_instances = IdleInstances(store, settings, budgets, time.steady)
    reconciler = Reconciler(
        store,
        market,
        idle_instances,
        lambda instance, offer: launch_token(controller_id, instance, offer),
        settings.drain_seconds,
    )
    reconciler.on_hand_over = parts.on_hand_over
    observer = Observer(store, market, workers, settings, time)
    observer.on_capacity = parts.on_capacity
    observer.consoles.keep = parts.on_console
    return Controller(
        store=store,
        market=market,
        policy=parts.policy,
        observer=observer,
        lifecycle=JobLifecycle(
            *(store, parts.lighthouses, parts.workers, settings, idle_instances, budgets),
            *(time.steady, JobFailures(store, market)),
        ),
        reconciler=reconciler,
        calls=calls,
        settings=settings,
        budgets=budgets,
        time=time,
        truth=parts.truth,
        span=parts.span,
    )
