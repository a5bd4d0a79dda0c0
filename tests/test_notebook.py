"""Jobs in a notebook, with a stand-in for IPython's display."""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.notebook import NotebookJob, notebook_display, shown_job, shown_text
from autoscaler.wire.messages import InstanceView, JobView
from tests.cli.test_tables import JOB
from tests.conformance.store_examples import report

RUNNING = replace(
    JOB,
    id="digits",
    phase=JobPhase.RUNNING,
    instances=(
        InstanceView(
            *("digits-0-1", "digits", "small", InstancePhase.TRAINING, 1, Decimal("0.50"), 100.0)
        ),
    ),
    report=replace(
        report(), total_examples=12_800.0, goodput_measured=100.0, metrics={"accuracy": 0.97312}
    ),
    usd_per_hour=Decimal("0.50"),
    eta_seconds=90.0,
    trouble="<script>alert(1)</script>",
)
DONE = replace(RUNNING, phase=JobPhase.FINISHED, instances=(), trouble=None, eta_seconds=None)


class ScriptedClient:
    """Client whose answers come one after the other."""

    def __init__(self, *answers: JobView | Exception) -> None:
        self._answers = list(answers)

    def job(self, name: str) -> JobView:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def watched(*answers: JobView | Exception) -> NotebookJob:
    return NotebookJob("digits", ScriptedClient(*answers))  # type: ignore[arg-type]


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Outputs of a notebook: whether each is new or an update, and its HTML."""
    outputs: list[tuple[str, str]] = []

    def display(content: Any, display_id: bool) -> SimpleNamespace:
        assert display_id
        outputs.append(("new", content._repr_html_()))
        update = lambda later: outputs.append(("update", later._repr_html_()))  # noqa: E731
        return SimpleNamespace(update=update)

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return outputs


def test_a_job_is_one_output_that_is_updated_until_its_end(outputs: list[tuple[str, str]]) -> None:
    job = watched(RUNNING, Unavailable("no controller"), DONE)
    clock = VirtualClock()
    assert job.watch(clock) is DONE
    assert [kind for kind, _ in outputs] == ["new", "update", "update"]
    assert clock.now() == 4.0
    first, last = outputs[0][1], outputs[-1][1]
    assert "value='50.0'" in first and "<td style='text-align:left'>0.9731</td>" in first
    assert "running" in first and "finished" in last
    assert "<script>" not in first and "&lt;script&gt;" in first


def test_the_last_expression_of_a_cell_is_a_table() -> None:
    assert watched(DONE)._repr_html_() == shown_job(DONE).html
    assert repr(watched(DONE)) == (
        "digits: phase finished, progress 50%, goodput 100 examples/s, cost $1.25 ($0.50/h), "
        "accuracy 0.9731"
    )


def test_elsewhere_a_job_is_a_line_at_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert notebook_display() is None
    watched(RUNNING, RUNNING, DONE).watch(VirtualClock())
    lines = capsys.readouterr().out.splitlines()
    assert lines == [shown_job(RUNNING).text, shown_job(DONE).text]


def test_an_interrupt_ends_the_watch_and_not_the_job() -> None:
    assert watched(RUNNING, KeyboardInterrupt()).watch(VirtualClock()) is RUNNING  # type: ignore[arg-type]


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: object()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert notebook_display() is None


def test_the_text_of_a_study_is_escaped() -> None:
    assert shown_text("sweep", "best <1>").html == "<b>sweep</b>: best &lt;1&gt;"
