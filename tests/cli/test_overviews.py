"""`castor queue` and `castor top`."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from autoscaler.cli.live import job_detail
from autoscaler.cli.queue import queue, queue_table
from autoscaler.cli.tables import JobsTable
from autoscaler.cli.top import top_view
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.offer import Purchase
from autoscaler.domain.plan import Action
from autoscaler.wire.messages import DecisionView, FleetView, InstanceView, JobView
from tests.cli.test_tables import JOB
from tests.conformance.store_examples import offer
from tests.controller.world import World
from tests.service.agents import training_report
from tests.service.conftest import served

NOW = 1000.0
FLEET = FleetView("c", "0", (offer(),), (), frozenset(), (), Decimal("2.50"), {}, NOW, None)


_EITHER = (InstanceBounds(), InstanceBounds(spot=False))


def job(name: str, phase: JobPhase = JobPhase.PENDING, **changes: object) -> JobView:
    common = {"id": name, "phase": phase, "instances": (), "decision": None, "eta_seconds": None}
    return replace(JOB, **{"submitted_seconds": NOW - 60, **common, **changes})  # type: ignore[arg-type]


def decided(name: str, target: Allocation | None, **figures: float) -> DecisionView:
    action = Action.WAIT if target is None else Action.START
    return DecisionView(NOW, name, action, f"{action} {name}", None, target, figures)


def instance(name: str, phase: InstancePhase, age_seconds: float = 0.0) -> InstanceView:
    price = Decimal("0.10")
    return InstanceView(f"{name}-0-1", name, offer().id, phase, 1, price, NOW - age_seconds)


def text(view: object) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(view)
    return out.getvalue()


def test_the_queue_has_the_next_job_first_and_its_start() -> None:
    running = job(
        "runs",
        JobPhase.RUNNING,
        instances=(instance("runs", InstancePhase.TRAINING),),
        eta_seconds=600.0,
    )
    boot_seconds = offer().boot_seconds
    boots = job(
        "boots",
        JobPhase.RUNNING,
        instances=(instance("boots", InstancePhase.BOOTING, boot_seconds / 2),),
    )
    starts = job("starts", decision=decided("starts", Allocation(offer().id, 2, 1)))
    poor = job("poor", decision=decided("poor", None, bid_usd_per_hour=1.0, weight=1.0))
    rich = job("rich", decision=decided("rich", None, bid_usd_per_hour=1.0, weight=4.0))
    new = job("new", bounds=InstanceBounds(minimum=2, maximum=4))
    done = job("done", JobPhase.FINISHED)
    rows = queue((new, poor, rich, starts, boots, running, done), FLEET, NOW)
    assert [row.job for row in rows] == ["boots", "starts", "rich", "poor", "new"]
    price = float(offer().usd_per_hour)
    assert rows[0].start_seconds == pytest.approx(boot_seconds / 2)
    assert (rows[1].start_seconds, rows[1].usd_per_hour) == (boot_seconds, 2 * price)
    assert (rows[2].start_seconds, rows[2].freed_by) == (600.0, "runs")
    assert (rows[2].bid_usd_per_hour, rows[3].bid_usd_per_hour) == (4.0, 1.0)
    assert (rows[4].usd_per_hour, rows[4].reason) == (2 * price, "not planned yet")
    shown = text(queue_table(rows))
    assert "not before 10m, when runs ends" in shown
    assert "wait rich" in shown


def test_a_job_that_has_lost_its_instances_waits_since_its_last_report() -> None:
    report = training_report(goodput_measured=2340.0)
    lost = job("lost", JobPhase.RUNNING, report=report, reported_seconds=NOW - 20)
    assert (lost.phase_text, lost.goodput_measured) == ("waiting", None)
    assert queue((lost,), FLEET, NOW)[0].waits_seconds == 20.0
    for shown in (text(JobsTable((lost,), NOW)), text(top_view((lost,), FLEET))):
        assert "waiting" in shown and "running" not in shown and "2,340" not in shown
    assert "goodput" not in text(job_detail(lost, None, NOW))
    held = replace(lost, instances=(instance("lost", InstancePhase.TRAINING),))
    assert (held.phase_text, held.goodput_measured) == ("running", 2340.0)


def test_the_least_price_of_a_job_that_waits_is_of_offers_that_it_may_use() -> None:
    spot = replace(offer(), id="spot", purchase=Purchase.SPOT, usd_per_hour=Decimal("0.01"))
    fleet = replace(FLEET, offers=(offer(), spot))
    pays = {bounds: queue((job("a", bounds=bounds),), fleet, NOW)[0] for bounds in _EITHER}
    assert [row.usd_per_hour for row in pays.values()] == [0.01, float(offer().usd_per_hour)]


def test_an_empty_queue_says_so() -> None:
    assert "no job waits" in text(queue_table(queue((), FLEET, NOW)))


def test_top_is_sorted_by_cost_or_by_what_a_dollar_brings() -> None:
    cheap = job(
        "cheap",
        JobPhase.RUNNING,
        usd_per_hour=Decimal("0.10"),
        decision=decided("cheap", None, marginal_goodput_per_usd_per_hour=500.0),
    )
    dear = job("dear", JobPhase.RUNNING, usd_per_hour=Decimal("2.40"))

    def order(key: str) -> list[str]:
        lines = text(top_view((cheap, dear), FLEET, key)).splitlines()
        return [line.split()[0] for line in lines[2:]]

    assert (order("c"), order("m"), order("n")) == (
        ["dear", "cheap"],
        ["cheap", "dear"],
        ["cheap", "dear"],
    )
    shown = text(top_view((cheap, dear), FLEET))
    assert shown.startswith("2 jobs on 0 instances, $2.50/h")
    assert "500" in shown


def in_terminal(words: Sequence[str], keys: bytes, environment: dict[str, str]) -> tuple[int, str]:
    """Run a command in a pseudo-terminal, press keys once it shows a table; return its output."""
    process, descriptor = pty.fork()
    if process == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "autoscaler.cli.app", *words], environment
        )
    output, deadline, pressed = b"", time.monotonic() + 40, False
    while time.monotonic() < deadline:
        ready, _, _ = select.select([descriptor], [], [], 0.5)
        try:
            output += os.read(descriptor, 65536) if ready else b""
        except OSError:  # the terminal is closed
            break
        if (not pressed and b"keys: c cost" in output) or (b"Go on?" in output and not pressed):
            os.write(descriptor, keys)
            pressed = True
    else:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(descriptor)
    return os.waitstatus_to_exitcode(status), output.decode(errors="replace")


def test_top_says_that_no_job_runs() -> None:
    assert "no job runs: castor submit starts one" in text(top_view((), FLEET))


def test_top_ends_with_q_and_drain_asks_on_a_terminal(tmp_path: Path, template: Path) -> None:
    with served(World(tmp_path, template=template), tmp_path) as api:
        api.world.submit("digits")
        environment = {
            **os.environ,
            "CASTOR_URL": api.url,
            "CASTOR_TOKEN": api.token,
            "TERM": "xterm",
            "COLUMNS": "160",
        }
        code, output = in_terminal(["top"], b"nq", environment)
        assert (code, "digits" in output) == (0, True)
        code, output = in_terminal(["drain", "--all"], b"n\n", environment)
        assert code == 1
        assert "this stops 1 job on 0 instances of all people. Go on?" in output
        assert "nothing was done" in output
        assert not api.world.store.jobs.get("digits").phase.is_final
