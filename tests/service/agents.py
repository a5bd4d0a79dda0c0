"""Instances of jobs for tests of the API, and their reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.report import TrainingReport
from autoscaler.spec.bundle import pack
from autoscaler.wire.messages import JoinRequest, NodeReport
from autoscaler.wire.node_client import NodeClient
from tests.service.conftest import Api

SPEC = JobSpec("job", ("python", "train.py"), instances=InstanceBounds(maximum=2))


def launched(api: Api, spec: JobSpec = SPEC, instances: int = 1) -> HeldInstance:
    """Launch the instances of a job, issue the join token of the first and return it."""
    job = api.client.submit(spec).id
    api.world.set_target(job, instances)
    api.world.tick(1, agents=False)
    held = api.world.store.instances.of_job(job)[0]
    api.authentication.issue(held)
    return held


def joined(api: Api, spec: JobSpec = SPEC, instances: int = 1) -> tuple[HeldInstance, NodeClient]:
    """Launch the instances of a job and let the first of them join."""
    held = launched(api, spec, instances)
    node = api.node()
    node.join(JoinRequest(api.authentication.join_token(held), held.id))
    return held, node


def node_report(held: HeldInstance, **changes: object) -> NodeReport:
    report = NodeReport(
        instance=held.id,
        phase=InstancePhase.TRAINING,
        attempt=1,
        devices_used=1,
        started_seconds=1.0,
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def training_report(step: int = 10, **changes: object) -> TrainingReport:
    report = TrainingReport(
        step=step,
        epoch=0,
        progress_examples=step * 32.0,
        total_examples=3200.0,
        batch=Batch(32, 32, 0),
        bounds=BatchBounds(32, 32, 32, False),
        replicas=1,
        devices=1,
        learning_rate=0.1,
        parameter_bytes=1000,
        goodput_measured=320.0,
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def packed(directory: Path, text: str = "print(1)") -> tuple[Path, str]:
    """Return an archive of a working directory, and the SHA-256 of what it holds."""
    tree, archive = directory / "tree", directory / "archive"
    tree.mkdir(exist_ok=True)
    (tree / "train.py").write_text(text)
    return archive, pack(tree, archive).sha256
