"""One job, the offers of two clouds: the real controller and planner over both fakes at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")
pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.offers.networks import waits_for_network
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import InlineWorkers
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.report import (
    CheckpointStatus,
    ReportOrigin,
    StepObservation,
    TrainingReport,
)
from autoscaler.policies.registry import create_policy
from autoscaler.store.memory.store import memory_store
from tests.controller.world import RecordedLighthouses
from tests.fakes.aws.server import FakeAws
from tests.fakes.gcp.server import FakeGcp
from tests.providers.aws.cloud import AwsWorld
from tests.providers.cloud.world import FakeCloud
from tests.providers.gcp.cloud import ZONES as GCP_ZONES
from tests.providers.gcp.cloud import GcpWorld

pytestmark = pytest.mark.gcp

TICK_SECONDS = 5.0
BATCH = 64
# Seconds of a step: an L4 does three and a half times what a T4 does, for twice the price.
STEPS = {"t4": 0.7, "l4": 0.2}


@pytest.fixture(scope="module")
def clouds() -> Iterator[tuple[FakeAws, FakeGcp]]:
    aws, gcp = FakeAws(SystemClock()), FakeGcp(SystemClock())
    yield aws, gcp
    aws.close()
    gcp.close()


class BothClouds:
    """A deployment with pools on EC2, where jobs keep their files, and on Compute Engine."""

    def __init__(
        self, clouds: tuple[FakeAws, FakeGcp], kept: Path, checkpoint_bytes: float, examples: float
    ) -> None:
        self.aws = AwsWorld(clouds[0], instance_types=["g4dn.xlarge"], purchases=["on-demand"])
        self.clock: VirtualClock = self.aws.clock
        self.gcp = GcpWorld(
            clouds[1],
            kept,
            self.clock,
            machine_types=["g2-standard-4"],
            purchases=["on-demand"],
        )
        self.fakes: dict[str, FakeCloud] = {"aws": self.aws, "gcp": self.gcp}
        for fake in self.fakes.values():
            fake.lag(lag_seconds=2.0, boot_seconds=20.0)
        self.store = memory_store()
        controller = self.store.settings.controller_id()
        parts = ControllerParts(
            store=self.store,
            providers={name: fake.connect(controller) for name, fake in self.fakes.items()},
            policy=create_policy("marginal"),
            lighthouses=RecordedLighthouses(),  # type: ignore[arg-type]
            workers=InlineWorkers(),
            clock=self.clock,
            user_data=lambda held: f"join {held.id}",
            files_network="aws/us-east-1",
        )
        self.controller = assemble(parts, ControllerSettings(replan_seconds=0.0))
        bounds = InstanceBounds(minimum=1, maximum=1)
        spec = JobSpec("words", ("train",), instances=bounds, total_examples=examples)
        self.job = self.store.jobs.add(spec, self.clock.now()).id
        self._checkpoint_bytes = checkpoint_bytes
        self._steps: dict[str, int] = {}
        self.trained_in: list[frozenset[str]] = []

    def tick(self) -> None:
        for fake in self.fakes.values():
            fake.pass_time(0.0)
        self.clock.advance(TICK_SECONDS)
        own = self.store.instances.of_job(self.job)
        for held in own:
            if held.cloud_id is not None and self._runs(held):
                self._agent_speaks(held)
        trained = [each for each in own if each.phase is InstancePhase.TRAINING]
        self.trained_in.append(frozenset(each.network for each in trained))
        self.controller.tick(self.clock.now())

    def sell_out(self) -> None:
        """Compute Engine has none of the type, in either zone."""
        for zone in GCP_ZONES:
            self.gcp.project.capacity["g2-standard-4", zone, "STANDARD"] = 0

    def learn(self, kind: str) -> None:
        """Add measurements of earlier training on devices of that kind."""
        seen = StepObservation(kind, 1, 1, BATCH, 0, STEPS[kind], 0.0, 500)
        self.store.measurements.add_observations(self.job, [seen], self.clock.now())

    def decisions(self) -> list[str]:
        """Reasons of all decisions, the oldest first."""
        entries = self.store.journal.decisions(self.job, limit=50)
        return [entry.decision.reason for entry in reversed(entries)]

    def _runs(self, held: HeldInstance) -> bool:
        return any(fake.is_running(held.cloud_id or "") for fake in self.fakes.values())

    def _agent_speaks(self, held: HeldInstance) -> None:
        now_seconds, phase = self.clock.now(), InstancePhase.TRAINING
        if held.desired is Desired.ABSENT:
            phase = InstancePhase.DRAINED
        elif waits_for_network(held, self.store.instances.of_job(self.job)):
            phase = InstancePhase.READY
        self.store.instances.record_node(held.id, phase, now_seconds)
        if phase is InstancePhase.TRAINING:
            kind = "t4" if held.network.startswith("aws") else "l4"
            origin = ReportOrigin(held.id, 1, now_seconds)
            self.store.reports.add(self.job, self._report(kind), origin, now_seconds)

    def _report(self, kind: str) -> TrainingReport:
        steps = int(TICK_SECONDS / STEPS[kind])
        self._steps[kind] = self._steps.get(kind, 0) + steps
        done = sum(self._steps.values())
        return TrainingReport(
            step=done,
            epoch=0,
            progress_examples=float(BATCH * done),
            total_examples=None,
            batch=Batch(BATCH, BATCH, 0),
            bounds=BatchBounds(BATCH, BATCH, BATCH, False),
            replicas=1,
            devices=1,
            learning_rate=0.1,
            parameter_bytes=1000,
            observations=(StepObservation(kind, 1, 1, BATCH, 0, STEPS[kind], 0.0, steps),),
            checkpoint=CheckpointStatus(
                step=done, seconds=5.0, bytes=int(self._checkpoint_bytes), pause_seconds=0.5
            ),
        )


def test_a_job_moves_to_the_cloud_whose_progress_costs_less_by_its_checkpoint(
    clouds: tuple[FakeAws, FakeGcp], tmp_path: Path
) -> None:
    both = BothClouds(clouds, tmp_path, checkpoint_bytes=2e9, examples=5e6)
    both.learn("t4")
    both.sell_out()
    for _ in range(20):
        both.tick()
    assert both.trained_in[-1] == {"aws/us-east-1"}
    both.learn("l4")
    both.gcp.project.capacity.clear()
    for _ in range(80):
        both.tick()
    assert both.trained_in[-1] == {"gcp/us-central1"}
    assert max(map(len, both.trained_in)) == 1, "they never train together"
    assert both.aws.alive() == [] and len(both.gcp.alive()) == 1
    moves = [reason for reason in both.decisions() if reason.startswith("move")]
    assert moves[-1].startswith(
        "move words from 1 x g4dn.xlarge (us-east-1a) to 1 x g2-standard-4 (us-central1-a): "
        "+217 ex/s for +$0.421/h"
    )
    assert moves[-1].endswith("; through a checkpoint, $0.18 to transfer it")


def test_a_checkpoint_that_is_dear_to_carry_keeps_the_job_where_its_files_are(
    clouds: tuple[FakeAws, FakeGcp], tmp_path: Path
) -> None:
    """The same prices and speeds: 200 GB cost $18 on the way, and $24 at each save from there."""
    both = BothClouds(clouds, tmp_path, checkpoint_bytes=200e9, examples=5e6)
    both.learn("t4")
    both.learn("l4")
    both.sell_out()
    for _ in range(20):
        both.tick()
    both.gcp.project.capacity.clear()
    for _ in range(60):
        both.tick()
    assert set(both.trained_in[-60:]) == {frozenset({"aws/us-east-1"})}
    assert not [reason for reason in both.decisions() if reason.startswith("move")]
    assert both.gcp.alive() == []
