"""Values for the tests of stores."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from sqlalchemy import create_engine, text

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.domain.instance import CloudInstance, CloudState, HeldInstance
from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    DataMount,
    InstanceBounds,
    JobSpec,
    SecretReference,
)
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.report import (
    CheckpointStatus,
    MembershipPause,
    StepObservation,
    TrainingReport,
)
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts, ThroughputModel
from autoscaler.store.store import Store

NOW = 1_800_000_000.0
BATCH = BatchBounds(initial=64, maximum=1024, device_maximum=256, adaptive=True)


def spec(name: str = "digits") -> JobSpec:
    return JobSpec(name, ("python", "train.py"))


def full_spec() -> JobSpec:
    return JobSpec(
        name="digits",
        command=("python", "train.py", "--name", 'quote " and ü'),
        bundle="ab" * 32,
        environment={"A": "1", "B": ""},
        secrets={"TOKEN": SecretReference(variable="TOKEN"), "KEY": SecretReference(file="~/.k")},
        data=(DataMount("/datasets/digits", "data"),),
        setup=("pip install x", "true"),
        image="image:1",
        batch=BatchSpec(64, 1024, 256, adaptive=True),
        instances=InstanceBounds(1, 4, ("local-small", "local-large"), spot=False),
        objective=Objective(
            Preference.VALUE_OF_TIME,
            value_of_time_usd_per_hour=40.0,
            deadline_seconds=NOW + 0.1,
            budget_usd=Decimal("500.10"),
        ),
        checkpoint=CheckpointSpec("/checkpoints", 300.0, 3),
        total_examples=1e9,
        retries=0,
    )


def offer(name: str = "local-small", usd_per_hour: str = "0.0500", minimum: int = 60) -> Offer:
    return Offer(
        id=name,
        provider="local",
        instance_type="small",
        zone="local",
        purchase=Purchase.ON_DEMAND,
        devices=1,
        device_kind="cpu-core",
        usd_per_hour=Decimal(usd_per_hour),
        boot_seconds=1.0,
        network_bytes_per_second=2e9,
        minimum_billed_seconds=minimum,
    )


def add_job(store: Store, name: str = "digits") -> str:
    return store.jobs.add(spec(name), NOW).id


def far_offer() -> Offer:
    """Return an offer whose transfers to and from the jobs' files are billed."""
    away = {"upload_usd_per_gb": Decimal("0.12"), "download_usd_per_gb": Decimal("0.09")}
    return replace(offer(), network="gcp/us-central1", **away)  # type: ignore[arg-type]


def order(
    store: Store, job: str = "digits", now_seconds: float = NOW, of: Offer | None = None
) -> HeldInstance:
    return store.instances.order(job, of or offer(), 1, "token of {}".format, now_seconds)


def listed_instance(
    instance: str,
    state: CloudState = CloudState.RUNNING,
    launched_seconds: float = NOW + 1,
    ended_seconds: float | None = None,
) -> CloudInstance:
    """Return the instance as its cloud lists it."""
    return CloudInstance(
        id=f"i-{instance}",
        token=f"token of {instance}",
        offer="local-small",
        state=state,
        tags={},
        launched_seconds=launched_seconds,
        ended_seconds=ended_seconds,
    )


def launch(store: Store, job: str = "digits", of: Offer | None = None) -> HeldInstance:
    """Order an instance and record that its cloud lists it as running."""
    held = order(store, job, of=of)
    return store.instances.observe_cloud(held.id, listed_instance(held.id), NOW + 1)


def end(store: Store, instance: str, ended_seconds: float = NOW + 100) -> HeldInstance:
    ended = listed_instance(instance, CloudState.TERMINATED, ended_seconds=ended_seconds)
    return store.instances.observe_cloud(instance, ended, ended_seconds)


def observation(step_seconds: float = 0.1, steps: int = 100, devices: int = 1) -> StepObservation:
    return StepObservation("cpu-core", devices, devices, 64, 0, step_seconds, 0.01, steps)


def report(step: int = 100, **changes: object) -> TrainingReport:
    values: dict[str, object] = {
        "step": step,
        "epoch": 1,
        "progress_examples": 64.0 * step,
        "total_examples": None,
        "batch": Batch(64, 64, 0),
        "bounds": BATCH,
        "replicas": 1,
        "devices": 1,
        "learning_rate": 1e-3,
        "parameter_bytes": 4_000_000_000,
        "noise": NoiseScale(64, 0.1, 0.2, 0.3),
        "observations": (observation(),),
        "pauses": (MembershipPause("join", 2.0, 1, 2),),
        "checkpoint": CheckpointStatus(step=90, seconds=0.5, bytes=1000),
        "metrics": {"loss": math.inf, "accuracy": 0.1},
    }
    return TrainingReport(**{**values, **changes})  # type: ignore[arg-type]


def model(alpha: float = 0.1, kind: str = "cpu-core") -> ThroughputModel:
    point = ThroughputParameters(alpha, 0.01, 0.02, 1e-3, 0.01, 1e-4, 1.5)
    return ThroughputModel(kind, point, (point,) * 4, frozenset({(1, 1), (2, 4)}))


def snapshot(now_seconds: float = NOW, alpha: float = 0.1) -> Snapshot:
    job = JobSnapshot(
        id="digits",
        objective=Objective(budget_usd=Decimal("5.10")),
        instances=InstanceBounds(1, 4),
        batch=BATCH,
        submitted_seconds=NOW - 10,
        remaining_examples=math.inf,
        spent_usd=0.1,
        held=Allocation("local-small", 1, 1),
        trained=None,
        models={"cpu-core": model(alpha)},
        noise=NoiseScale(64, 0.1, 0.2, 0.3),
        switching=SwitchingCosts(1.0, math.inf, {"local-small": 3.0}),
    )
    limit = Limit("local devices", LimitUnit.DEVICES, 4, frozenset({"local-small"}))
    return Snapshot(now_seconds, (offer(),), (limit,), (job,), frozenset({"local-large"}))


def decision(job: str = "digits", reason: str = "grow") -> Decision:
    target = Allocation("local-small", 2, 1)
    return Decision(job, Action.GROW, None, target, reason, {"surplus_usd_per_hour": 0.1})


def plan(*decisions: Decision) -> Plan:
    return Plan(decisions, {"local devices": 0.1}, 0.01, ("a note",))


def execute(url: str, statement: str) -> object:
    """Run a statement beside the store and return the first value of its answer, if any."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            answer = connection.execute(text(statement))
            return answer.scalar() if answer.returns_rows else None
    finally:
        engine.dispose()
