"""Heartbeats that a controller answers each second over HTTP, and how long each one waits.

    python benchmarks/heartbeats.py [--rate 1000] [--jobs 100] [--instances 10] [--seconds 20]
        [--plans] [--json]

A controller process serves an SQLite store, on a cloud that answers at once, and ticks as always.
Each of `--jobs` x `--instances` agents has a connection of its own and sends a heartbeat when it
is due, `--rate` a second in all; the first instance of each job adds a training report with one
observation, as the deciding replica does. With `--plans`, another thread of the controller makes
plans for 1,000 other jobs half of the time, which is the most that the control loop may. Latency
counts from the time at which a heartbeat is due. Before the measured time the controller is killed
under this load, and started again: `lost` counts the jobs whose last acknowledged report the store
does not have then. The load generator shares the machine's processors with the controller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import planning
import psutil
import ticks

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.report import StepObservation, TrainingReport
from autoscaler.domain.snapshot import Snapshot
from autoscaler.main import ServeSettings, serve
from autoscaler.main import deployment as controller_process
from autoscaler.policies.marginal.policy import MarginalPolicy
from autoscaler.service.access.authentication import Authentication, load_key
from autoscaler.store.opening import open_store
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import NodeReport
from tests.controller import world
from tests.controller.cloud import QuickCloud
from tests.service.agents import training_report
from tests.store.led import led_store

PLANNED_JOBS = 1_000
WARM_UP_SECONDS = 5.0
STEPS = 10  # of each observation
OK = 200
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Figures:
    """Result of one run. Latencies are in milliseconds."""

    agents: int
    answered_per_second: float
    median_ms: float
    p99_ms: float
    longest_ms: float
    refused: int
    processor: float
    lost: int


@dataclass
class Agent:
    """An agent that sends heartbeats over one connection."""

    held: HeldInstance
    token: str
    decides: bool
    step: int = 0
    acknowledged: int = 0
    content: bytes | None = None
    refused: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def request(self) -> bytes:
        """Return the next heartbeat as an HTTP request."""
        reports: tuple[TrainingReport, ...] = ()
        if self.decides:
            self.step += STEPS
            observation = StepObservation("core", 1, 1, 32, 0, 0.1, 0.01, STEPS)
            reports = (
                training_report(self.step, total_examples=1e12, observations=(observation,)),
            )
        body = encode(
            NodeReport,
            NodeReport(
                instance=self.held.id,
                phase=InstancePhase.TRAINING,
                attempt=1,
                devices_used=1,
                started_seconds=1.0,
                has_session=True,
                reports=reports,
                job=self.held.job,
            ),
        )
        return (
            "POST /v1/node/heartbeat HTTP/1.1\r\nHost: castor\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer {self.token}\r\n\r\n"
        ).encode() + body

    async def run(self, port: int, interval: float, first: float, end: float) -> None:
        """Send heartbeats until `end`; one without an answer is repeated a second later."""
        due = first
        while due < end:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            if self.content is None:
                self.content = self.request()
            status = await self._send(port, self.content)
            if status != OK:
                self.refused += 1
                due = max(due, time.monotonic()) + RETRY_SECONDS
                continue
            self.content, self.acknowledged = None, self.step
            self.latencies_ms.append(1e3 * (time.monotonic() - due))
            due = max(due + interval, time.monotonic() - interval)

    async def _send(self, port: int, content: bytes) -> int | None:
        """Send a request and return the status of the answer; None without one."""
        try:
            return await asyncio.wait_for(self._answer(port, content), TIMEOUT_SECONDS)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.streams = None
            return None

    async def _answer(self, port: int, content: bytes) -> int:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = self.streams
        writer.write(content)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        return int(lines[0].split()[1])


def prepared(directory: Path, jobs: int, instances: int) -> list[Agent]:
    """Prepare the store and the cloud of a deployment, and return its agents."""
    world.open_store = led_store  # type: ignore[assignment]
    world.FileCloud = QuickCloud  # type: ignore[misc]
    world.START_SECONDS = time.time() - 30.0
    deployment = ticks.deployment_of(directory, jobs, instances)
    assert isinstance(deployment.cloud, QuickCloud)
    (directory / "kept.json").write_text(json.dumps(deployment.cloud.kept))
    store = deployment.store
    key = load_key(directory / "secret.key")
    authentication = Authentication(store, key, SystemClock())
    agents = []
    for held in store.instances.alive():
        authentication.issue(held)
        token = authentication.join(authentication.join_token(held), held.id)
        agents.append(Agent(held, token, decides=held.id.startswith(f"{held.job}-0-")))
    store.close()
    return agents


class Lighthouses(world.RecordedLighthouses):
    """Lighthouses of jobs without training processes."""

    def __init__(self, *_: object) -> None:
        super().__init__()


def serve_store(directory: Path, port: int, plans: bool) -> None:
    """Run a controller on a prepared store."""
    devices = 1_000_000
    cloud = QuickCloud(directory / "cloud.json", SystemClock(), devices)
    cloud.kept = json.loads((directory / "kept.json").read_text())
    controller_process.open_providers = lambda *_: {"file": cloud}
    controller_process.LighthouseHost = Lighthouses  # type: ignore[assignment, misc]
    controller_process.planning_policy = lambda name: world.PlannedTargets()
    if plans:
        threading.Thread(target=plan_always, daemon=True).start()
    serve(ServeSettings(directory, port=port))


def plan_always() -> None:
    """Make plans for other jobs, with a pause after each as long as the plan took."""
    policy = MarginalPolicy()
    snapshot = Snapshot(planning.NOW, planning.offers(), (), planning.jobs(PLANNED_JOBS))
    while True:
        began = time.perf_counter()
        policy.plan(snapshot)
        time.sleep(time.perf_counter() - began)


@contextmanager
def served(directory: Path, port: int, plans: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process of a controller that answers."""
    command = [sys.executable, __file__, "--serve", str(directory), "--port", str(port)]
    process = subprocess.Popen([*command, *(["--plans"] if plans else [])])
    try:
        while True:
            assert process.poll() is None, "the controller has ended"
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def load(agents: list[Agent], port: int, rate: float, seconds: float) -> None:
    """Let all agents send heartbeats for some seconds."""
    interval, begin = len(agents) / rate, time.monotonic() + 0.5
    await asyncio.gather(
        *(
            agent.run(port, interval, begin + interval * index / len(agents), begin + seconds)
            for index, agent in enumerate(agents)
        )
    )
    for agent in agents:
        if agent.streams is not None:
            agent.streams[1].close()
            agent.streams = None


def lost_reports(directory: Path, agents: list[Agent]) -> int:
    """Return the number of jobs whose last acknowledged report is not in the store."""
    store = open_store(f"sqlite:///{directory / 'castor.db'}")
    lost = 0
    for agent in agents:
        if agent.decides:
            report = store.jobs.get(agent.held.job).report
            lost += agent.acknowledged > (0 if report is None else report.step)
    store.close()
    return lost


def measure(arguments: argparse.Namespace) -> Figures:
    """Return the figures of one run."""
    directory, port = Path(tempfile.mkdtemp()), free_port()
    try:
        agents = prepared(directory, arguments.jobs, arguments.instances)
        with served(directory, port, arguments.plans) as process:
            threading.Timer(0.8 * WARM_UP_SECONDS, process.kill).start()
            asyncio.run(load(agents, port, arguments.rate, WARM_UP_SECONDS))
        lost = lost_reports(directory, agents)
        with served(directory, port, arguments.plans) as process:
            asyncio.run(load(agents, port, arguments.rate, WARM_UP_SECONDS))
            for agent in agents:
                agent.latencies_ms.clear()
            usage = psutil.Process(process.pid)
            before = sum(usage.cpu_times()[:2])
            refused = sum(agent.refused for agent in agents)
            asyncio.run(load(agents, port, arguments.rate, arguments.seconds))
            used_seconds = sum(usage.cpu_times()[:2]) - before
        latencies = np.concatenate([agent.latencies_ms for agent in agents])
        return Figures(
            agents=len(agents),
            answered_per_second=len(latencies) / arguments.seconds,
            median_ms=float(np.median(latencies)),
            p99_ms=float(np.percentile(latencies, 99)),
            longest_ms=float(latencies.max()),
            refused=sum(agent.refused for agent in agents) - refused,
            processor=used_seconds / arguments.seconds,
            lost=lost,
        )
    finally:
        shutil.rmtree(directory)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=1000.0, help="heartbeats a second in all")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--instances", type=int, default=10, help="instances of each job")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured time")
    parser.add_argument("--plans", action="store_true", help="make plans all the time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve_store(arguments.serve, arguments.port, arguments.plans)
        return
    figures = measure(arguments)
    if arguments.json:
        print(json.dumps(asdict(figures)))
        return
    print("| agents | answered a second | median | p99 | longest | refused | processor | lost |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {figures.agents:,} | {figures.answered_per_second:.0f} | {figures.median_ms:.0f} ms "
        f"| {figures.p99_ms:.0f} ms | {figures.longest_ms:.0f} ms | {figures.refused} "
        f"| {figures.processor:.2f} | {figures.lost} |"
    )


if __name__ == "__main__":
    main()
