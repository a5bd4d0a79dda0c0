"""Texts of jobs, instances and clouds on their way to a person's terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from autoscaler.cli.live import job_detail, overview
from autoscaler.cli.submit.waiting import print_end
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import CheckpointStatus, Failure
from tests.service.agents import joined, node_report, training_report
from tests.service.conftest import Api

ESCAPE = "\x1b[2J\x1b]0;title\x07\x9b"


def test_nothing_that_a_job_says_steers_a_terminal(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    held, node = joined(api)
    failure = Failure(held.id, 1, 1, f"cause {ESCAPE}", "s", 0, (f"line {ESCAPE}",))
    training = training_report(
        metrics={"loss": 0.5},
        checkpoint=CheckpointStatus(error=f"trouble {ESCAPE}"),
    )
    report = node_report(held, reports=(training,), notes=(f"note {ESCAPE}",), failure=failure)
    node.heartbeat(replace(report, phase=InstancePhase.WAITING))
    job = api.client.job("job")
    assert {event.kind for event in job.events} >= {"note", "failure", "checkpoint failed"}
    out = io.StringIO()
    console = Console(file=out, width=200)
    console.print(overview(api.client.jobs(), api.client.fleet(), 0.0))
    console.print(job_detail(job, None, 0.0))
    print_end(job)
    shown = out.getvalue() + "".join(capsys.readouterr())
    assert r"\x1b[2J" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
