from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.objective import Objective
from autoscaler.domain.report import ReportOrigin, TrainingReport
from autoscaler.loop_watch import LoopState
from autoscaler.service.health import Health
from autoscaler.service.instances.gpu_uses import GpuUses
from autoscaler.telemetry.meters import Meters
from autoscaler.telemetry.metrics_page import MetricSources, MetricsPage
from tests.controller.world import World

REPORT = TrainingReport(
    step=10,
    epoch=0,
    progress_examples=320.0,
    total_examples=3200.0,
    batch=Batch(64, 32, 1),
    bounds=BatchBounds(32, 128, 32, True),
    replicas=1,
    devices=1,
    learning_rate=0.1,
    parameter_bytes=1000,
    noise=NoiseScale(32, 1.0, 3.0, 0.1),
    goodput_measured=80.0,
)
LEADS = Health("leader", LoopState(0.5, 0.5), None, 3.0)

Labels = frozenset[tuple[str, str]]


def values_of(text: bytes) -> dict[str, dict[Labels, float]]:
    """Return the samples of a text of `/metrics`, by name and labels."""
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in samples.setdefault(sample.name, {}), (sample.name, labels)
            samples[sample.name][labels] = sample.value
    return samples


@dataclass
class Scraped:
    """Metrics of a deployment on a virtual clock."""

    world: World
    meters: Meters
    sources: MetricSources
    health: Health = LEADS
    page: MetricsPage = field(init=False)

    def __post_init__(self) -> None:
        self.sources = replace(self.sources, health=lambda: self.health)
        self.page = MetricsPage(self.sources)

    def show(self, **changes: object) -> None:
        """Change the sources."""
        self.sources = replace(self.sources, **changes)  # type: ignore[arg-type]
        self.page = MetricsPage(self.sources)

    def scrape(self) -> dict[str, dict[Labels, float]]:
        """Return the samples, some seconds after the last scrape."""
        self.world.clock.advance(3.0)
        return values_of(self.page.text("")[0])

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one value of a metric with these labels among its own; None without one."""
        wanted = set(labels.items())
        values = [value for has, value in self.scrape().get(name, {}).items() if wanted <= has]
        assert len(values) <= 1, f"{name}: {values}"
        return values[0] if values else None

    def train(self, job: str, instances: int = 1) -> HeldInstance:
        """Let a job train on some instances, and return the first."""
        self.world.set_target(job, instances)
        self.world.tick(4)
        return self.world.training(job)[0]

    def report(self, held: HeldInstance, report: TrainingReport = REPORT) -> None:
        """Store a training report of an instance."""
        origin = ReportOrigin(held.id, 1, 1.0)
        self.world.store.reports.add(held.job, report, origin, self.world.clock.now())


def objective(budget_usd: str = "20", deadline_seconds: float | None = 2e6) -> Objective:
    return Objective(budget_usd=Decimal(budget_usd), deadline_seconds=deadline_seconds)


@pytest.fixture
def scraped(tmp_path: Path) -> Scraped:
    world = World(tmp_path)
    meters = Meters(world.clock)
    sources = MetricSources(
        store=world.store,
        status=world.controller.status,
        health=lambda: LEADS,
        meters=meters,
        clock=world.clock,
        version="1.2.3",
        fleet_usd=None,
        most_jobs=1000,
        gpu_uses=GpuUses(),
        billed_seconds=lambda job, now_seconds: {},
    )
    return Scraped(world, meters, sources)
