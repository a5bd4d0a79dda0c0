"""Latency of `report` and `should_prune` of a trial, and the controller's part of it.

python benchmarks/trial_reports.py [--workers 8] [--steps 200] [--interval-seconds 0.25]

The controller (HTTP, SQLite), the study's driver and each worker with its agent's relay are
processes of their own, as on real instances. There are no instances, and the controller plans
nothing. Each worker takes `interval-seconds` on average between two reports; 0 sends them one
after the other. `whole`: from `report` to the answer of `should_prune`. `controller`: from a
call's arrival at the controller until it is sent to the waiting driver, and the same for the
answer; `told` and `answered` are the two parts. `processor` is the controller's processor time per
report.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import uvicorn

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.trial import TrialAnswer, WaitingCall
from autoscaler.main import Deployment, ServeSettings
from autoscaler.main import deployment as deployments
from autoscaler.node.channel.line import Line
from autoscaler.node.channel.trial_relay import TrialRelay
from autoscaler.node.state import Start
from autoscaler.service.studies.studies import Studies
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import JobView
from autoscaler.wire.node_client import NodeClient
from autoscaler.wire.study_messages import StudyAnswers, TrialCalls
from hpo.driver.driver import Driver
from hpo.driver.run_limits import RunLimits
from hpo.worker.connection import TrialConnection
from hpo.worker.process import run_trial

_STUDY = "reports"
_TOKEN = "a person"
_OFFER = Offer(
    "small", "benchmark", "small", "here", Purchase.ON_DEMAND, 1, "core", Decimal(1), 0.0, 1e9
)
_PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "hyperband": lambda: optuna.pruners.HyperbandPruner(1, 10_000),
    "median": optuna.pruners.MedianPruner,
}

Key = tuple[str, int]
_KINDS = ("tell", "calls", "answer", "answers")


@dataclass
class Request:
    """Request at the controller: its arrival, the end of its answer, and its calls by kind.

    A worker's request both tells calls and awaits answers; so does a driver's, the other way.
    """

    came_seconds: float = 0.0
    left_seconds: float = 0.0
    keys_by_kind: dict[str, list[Key]] = field(default_factory=dict)


_current: ContextVar[Request] = ContextVar("request")


class NotedStudies(Studies):
    """Studies that record the calls of each request."""

    async def tell(
        self, held: HeldInstance, told: TrialCalls, after: int = 0, wait_seconds: float = 0.0
    ) -> tuple[TrialAnswer, ...]:
        """Record and pass on a worker's calls; return the answers that it awaits."""
        _record_calls("tell", [(held.job, call.number) for call in told.calls])
        return await super().tell(held, told, after, wait_seconds)

    async def calls(
        self, study: str, holder: str, wait_seconds: float, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Return and record the calls for the driver."""
        waiting = await super().calls(study, holder, wait_seconds, beyond)
        _record_calls("calls", [(call.job, call.call.number) for call in waiting])
        return waiting

    async def answer(
        self, study: str, given: StudyAnswers, wait_seconds: float = 0.0, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        """Record and pass on the driver's answers; return the calls that it awaits."""
        _record_calls("answer", [(answer.job, answer.answer.number) for answer in given.answers])
        return await super().answer(study, given, wait_seconds, beyond)

    async def answers(
        self,
        held: HeldInstance,
        job: str | None,
        incarnation: int,
        after: int,
        wait_seconds: float,
    ) -> tuple[TrialAnswer, ...]:
        """Return and record the answers for a worker."""
        answered = await super().answers(held, job, incarnation, after, wait_seconds)
        _record_calls("answers", [(held.job, answer.number) for answer in answered])
        return answered


def _record_calls(kind: str, keys: list[Key]) -> None:
    """Record calls of the current request."""
    _current.get().keys_by_kind[kind] = keys


class Timed:
    """ASGI application that records the times of its requests."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self.requests: list[Request] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one request."""
        request = Request(came_seconds=time.perf_counter())
        _current.set(request)
        await self._app(scope, receive, send)
        request.left_seconds = time.perf_counter()
        self.requests.append(request)

    def parts(self) -> dict[str, list[float]]:
        """Return the controller's part of each call delivered and answered, in seconds.

        Calls of which a request began before the measurement, or has not ended, are left out.
        """
        requests_by_kind: dict[str, dict[Key, Request]] = {kind: {} for kind in _KINDS}
        for request in self.requests:
            for kind, keys in request.keys_by_kind.items():
                for key in keys:
                    requests_by_kind[kind].setdefault(key, request)
        sent_seconds, answered_seconds = [], []
        for key, sent in requests_by_kind["tell"].items():
            if any(key not in requests_by_kind[kind] for kind in _KINDS):
                continue
            delivered, answer, received = (requests_by_kind[kind][key] for kind in _KINDS[1:])
            sent_seconds.append(
                delivered.left_seconds - max(sent.came_seconds, delivered.came_seconds)
            )
            answered_seconds.append(
                received.left_seconds - max(answer.came_seconds, received.came_seconds)
            )
        total_seconds = [sum(parts) for parts in zip(sent_seconds, answered_seconds, strict=True)]
        return {"told": sent_seconds, "answered": answered_seconds, "controller": total_seconds}


def control(state: Path, workers: int, line: Connection) -> None:
    """Run the controller, with a trial for each worker."""
    state.mkdir()
    vars(deployments)["Studies"] = NotedStudies
    settings = ServeSettings(state)
    deployment = Deployment(settings, "http://127.0.0.1", SystemClock())
    deployment.authentication.people.set_owner(_TOKEN)
    timed = Timed(deployment.app)
    server = uvicorn.Server(
        uvicorn.Config(timed, port=0, log_level="warning", access_log=False, lifespan="off")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    line.send(
        (f"http://127.0.0.1:{port}", [_token(deployment, number) for number in range(workers)])
    )
    line.recv()
    timed.requests.clear()
    before_seconds = time.process_time()
    line.recv()
    used_seconds = time.process_time() - before_seconds
    line.send((timed.parts(), used_seconds))
    line.recv()
    server.should_exit = True
    thread.join()
    deployment.close()


def _token(deployment: Deployment, number: int) -> str:
    """Return the token of the instance of one trial's job."""
    store, authentication = deployment.store, deployment.authentication
    now_seconds = SystemClock().now()
    job = store.jobs.add(JobSpec(f"{_STUDY}-{number}", ("worker",), study=_STUDY), now_seconds)
    held = store.instances.order(job.id, _OFFER, 1, lambda name: name, now_seconds)
    authentication.issue(held)
    return authentication.join(authentication.join_token(held), held.id)


class Jobs(Client):
    """Client whose jobs exist already; sets `all_begun` at the last trial."""

    def __init__(self, url: str, workers: int, all_begun: Event) -> None:
        super().__init__(url, _TOKEN)
        self._remaining = workers
        self._all_begun = all_begun

    def submit(
        self, spec: JobSpec, bundle: Path | None = None, *, driver: str | None = None
    ) -> JobView:
        """Return the job of that name."""
        self._remaining -= 1
        if self._remaining == 0:
            self._all_begun.set()
        return self.job(spec.name)


def drive(url: str, storage: str, pruner: str, workers: int, all_begun: Event) -> None:
    """Run the study's driver."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(study_name=_STUDY, storage=storage, pruner=_PRUNERS[pruner]())
    template = JobSpec(_STUDY, ("worker",), study=_STUDY)
    client = Jobs(url, workers, all_begun)
    line = StudyClient(url, _TOKEN, _STUDY)
    Driver(study, template, client, line, "driver", SystemClock()).run(RunLimits(trials=workers))


def work(
    url: str, token: str, directory: Path, limits: tuple[int, float], line: Connection
) -> None:
    """Run a worker and its agent; send the seconds of each report."""
    steps, interval_seconds = limits
    logging.disable(logging.WARNING)  # warnings until the driver is connected
    relay = TrialRelay(NodeClient(url, token), directory / "calls", SystemClock())
    agent_line = Line(directory / "agent.sock", lambda: None, relay.take)
    relay.on_answer = agent_line.answer
    assignment: Any = SimpleNamespace(
        job=f"{_STUDY}-{directory.name}",
        spec=SimpleNamespace(study=_STUDY),
        checkpoint_directory=str(directory),
    )
    relay.serve(assignment, Start(1, 1, 1.0, 0))
    generator = random.Random(token)
    report_seconds: list[float] = []

    def objective(trial: optuna.trial.BaseTrial) -> float:
        """Return 1 after timed reports with random values."""
        trial.suggest_float("x", 0.0, 1.0)
        line.send("ready")
        line.recv()
        for step in range(steps):
            time.sleep(generator.expovariate(1.0) * interval_seconds)
            before_seconds = time.perf_counter()
            trial.report(generator.random(), step)
            trial.should_prune()
            report_seconds.append(time.perf_counter() - before_seconds)
        line.send(report_seconds)
        line.recv()
        return 1.0

    run_trial(objective, TrialConnection(directory / "agent.sock", SystemClock()))


def measure(options: argparse.Namespace, directory: Path) -> dict[str, list[float]]:
    """Return the seconds of all reports in one run, by part."""
    processes = multiprocessing.get_context("spawn")
    controller_line, controller_end = processes.Pipe()
    state = directory / "state"
    controller = processes.Process(target=control, args=(state, options.workers, controller_end))
    controller.start()
    url, tokens = controller_line.recv()
    storage = options.storage or f"sqlite:///{directory / 'study.db'}"
    all_begun = processes.Event()
    driver_arguments = (url, storage, options.pruner, options.workers, all_begun)
    driver = processes.Process(target=drive, args=driver_arguments)
    driver.start()
    all_begun.wait()
    lines, workers = [], []
    for number, token in enumerate(tokens):
        folder = directory / str(number)
        folder.mkdir()
        line, end = processes.Pipe()
        limits = (options.steps, options.interval_seconds)
        workers.append(processes.Process(target=work, args=(url, token, folder, limits, end)))
        workers[-1].start()
        lines.append(line)
    _start_together(lines, controller_line)
    whole = [seconds for line in lines for seconds in line.recv()]
    controller_line.send("done")
    parts, used_seconds = controller_line.recv()
    for line in lines:
        line.send("end")
    for process in (*workers, driver):
        process.join()
    controller_line.send("end")
    controller.join()
    return {"whole": whole, **parts, "processor": [used_seconds / len(whole)]}


def _start_together(lines: list[Connection], controller: Connection) -> None:
    """Start all workers once all are ready."""
    for line in lines:
        line.recv()
    controller.send("begin")
    for line in lines:
        line.send("begin")


def main() -> None:
    """Print a row for each part: quantiles in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--interval-seconds", type=float, default=0.25)
    parser.add_argument("--pruner", choices=_PRUNERS, default="hyperband")
    parser.add_argument("--storage", help="URL of the study's storage; a SQLite file by default")
    parser.add_argument("--directory", help="folder of all files, such as on another disk")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        seconds_by_part = measure(options, Path(directory))
    rows = {
        name: {f"p{part}": float(np.percentile(seconds, part)) * 1e3 for part in (50, 90, 99)}
        for name, seconds in seconds_by_part.items()
    }
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{len(seconds_by_part['whole'])} reports; milliseconds   p50     p90     p99")
    for name, row in rows.items():
        print(f"{name:28}" + "".join(f"{value:8.2f}" for value in row.values()))


if __name__ == "__main__":
    main()
