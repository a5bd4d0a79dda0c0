"""`castor serve` in a process that tests kill and start again, and the checks of its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path

import psutil
import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import INSTANCE_TAG, CloudInstance, HeldInstance
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.ledger.ledger import Ledger
from autoscaler.lighthouse.host import LighthouseHost
from autoscaler.store.store import Store
from autoscaler.wire.client import Client
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
from tests.builders.controllers import ticking_client
from tests.training.fleet import wait_until


class KilledController:
    """Process of `castor serve` with the state directory `state`; `options` are further ones."""

    def __init__(self, state: Path, options: Sequence[str] = ()) -> None:
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:2])
        self.state = state
        self._command = [
            *(sys.executable, "-P", "-m", "autoscaler.cli.app", "serve"),
            *("--state", str(state), "--port", "0", "--devices", cores),
            *("--boot-seconds", "0.1", "--checkpoint-seconds", "2"),
            *options,
        ]
        self._log = state.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, without waiting until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it runs."""
        self._end(signal.SIGKILL)

    def end(self) -> None:
        """End the process with SIGTERM, if it runs."""
        self._end(signal.SIGTERM)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a client, once the controller has ticked."""
        with closing(
            wait_until(self._connected, seconds=60, description="a controller that answers")
        ) as client:
            yield client

    def calls(self) -> set[Path]:
        """Return the launches and terminations that the cloud has recorded."""
        instances = self.state / "local" / "instances"
        return {*instances.glob("*"), *instances.glob("*/terminate")}

    def last_lines(self) -> str:
        """Return the end of its log."""
        return self._log.read_text()[-4000:]

    def _connected(self) -> Client | None:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended by itself:\n{self.last_lines()}"
        return ticking_client(self.state)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


def require_agreement(store: Store, state: Path) -> None:
    """Assert that store and cloud agree on launches, ends and costs."""
    clock = SystemClock()
    local = LocalProvider(state / "local", store.settings.controller_id(), LocalSettings(), clock)
    seen = {instance.tags[INSTANCE_TAG]: instance for instance in local.instances()}
    assert len(seen) == len(local.instances()), "an order was launched twice"
    ordered = [
        held
        for job in store.jobs.all()
        for held in store.instances.of_job(job.id, include_ended=True)
    ]
    assert seen.keys() <= {held.id for held in ordered}, "launched, and nobody knows it"
    for held in ordered:
        _require_settled(store, held, seen.get(held.id))
    spent_usd = Ledger(store.ledger.entries()).by_instance(clock.now())
    billed_usd = {line.instance: line.usd for line in local.bill()}
    assert {seen[name].id for name in spent_usd} == billed_usd.keys()
    for name, usd in spent_usd.items():
        assert abs(usd - billed_usd[seen[name].id]) < Decimal("0.00001"), name
    print(f"{len(store.jobs.all())} jobs, {len(ordered)} orders, {len(seen)} instances")


def _require_settled(store: Store, held: HeldInstance, seen: CloudInstance | None) -> None:
    """Assert that no call for an order is open, and that its instance, if any, has ended."""
    intents = store.intents.of_instance(held.id)
    assert all(intent.state is not IntentState.PENDING for intent in intents), intents
    assert held.phase == "ended", held
    launches = [intent for intent in intents if intent.kind is IntentKind.LAUNCH]
    if seen is None:
        assert held.cloud_id is None and launches[0].state is IntentState.FAILED, held
    else:
        assert (held.cloud_id, launches[0].token) == (seen.id, seen.token)
        assert held.ended_seconds == pytest.approx(seen.ended_seconds)


def lighthouses_of(state: Path) -> set[str]:
    """Return the jobs whose lighthouses run."""
    host = LighthouseHost(state / "lighthouses", "127.0.0.1", SystemClock())
    return set(host.running())


def processes_of(state: Path) -> list[psutil.Process]:
    """Return the processes that name the state directory in their command or environment."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(state) in word for word in words):
                processes.append(process)
    return processes
