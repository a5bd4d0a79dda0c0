"""Spans of a controller, as OpenTelemetry's SDK records them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autoscaler.cli.logging_setup import JsonFormatter
from autoscaler.controller.assembly import assemble
from autoscaler.controller.workers import CallKind, ThreadWorkers
from autoscaler.domain.errors import InsufficientCapacity, SpecError
from autoscaler.service.jobs.views import decision_view
from autoscaler.telemetry.meters import MeteredPolicy, MeteredProvider, Meters
from autoscaler.telemetry.traces import NoTraces, Traces, open_traces, require_traces
from tests.controller.world import World


class Recorded:
    """Traces whose spans a test reads."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.traces = Traces(provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


class ThreadedWorld(World):
    """Deployment whose calls to its cloud are made in threads, and traced."""

    def __init__(self, directory: Path, recorded: Recorded) -> None:
        self._recorded = recorded
        self.calls = ThreadWorkers(("file",), ThreadPoolExecutor)
        super().__init__(directory)

    def restart(self) -> None:
        span, meters = self._recorded.traces.span, Meters(self.clock)
        parts = replace(
            self.parts(),
            providers={"file": MeteredProvider("file", self.cloud, meters, span)},
            policy=MeteredPolicy(self.policy, meters, span),
            call_workers=self.calls,
            on_outcome=self._recorded.traces.woke,
            span=span,
        )
        self.controller = assemble(parts, self.settings)

    def traced_tick(self) -> None:
        """Tick once, and wait for the calls to the cloud."""
        self.clock.advance(2.0)
        with self._recorded.traces.tick():
            self.controller.tick(self.clock.now())
        for kind in (CallKind.LIST, CallKind.LAUNCH):
            for pool in [pool for key, pool in self.calls._pools.items() if key[0] is kind]:
                for future in [pool.submit(lambda: None) for _ in range(8)]:
                    future.result()


@pytest.fixture
def world(tmp_path: Path, recorded: Recorded) -> Iterator[ThreadedWorld]:
    world = ThreadedWorld(tmp_path, recorded)
    yield world
    world.calls.close()


def test_a_call_to_the_cloud_is_part_of_the_tick_that_a_report_woke(
    world: ThreadedWorld, recorded: Recorded
) -> None:
    for _ in range(2):  # the offers are known
        world.traced_tick()
    recorded.exporter.clear()
    world.set_target(world.submit("a"), 1)
    with recorded.traces.span("report", job="a", instance="a-0-1"):
        recorded.traces.woke()
    while not recorded.spans("file launch"):
        world.traced_tick()
    report, launch = recorded.only("report"), recorded.only("file launch")
    ticks = {id_of(span): span for span in recorded.spans("tick")}
    intent = recorded.only("launch instance")
    act = {id_of(span): span for span in recorded.spans("act")}[parent_of(intent) or 0]
    tick = ticks[parent_of(act) or 0]
    assert parent_of(launch) == id_of(intent)
    assert launch.get_span_context().trace_id == tick.get_span_context().trace_id
    first = min(ticks.values(), key=lambda span: span.start_time or 0)
    assert id_of(report) in {link.context.span_id for link in first.links}
    assert intent.attributes is not None
    assert intent.attributes["castor.instance"] == "a-0-1"
    assert intent.attributes["castor.intent"] == 1
    plans = {parent_of(span) for span in recorded.spans("plan")}
    assert plans <= {id_of(span) for span in recorded.spans("decide")}
    assert {parent_of(span) for span in recorded.spans("observe")} == ticks.keys()


def test_a_decision_is_found_from_its_trace_and_back(
    world: ThreadedWorld, recorded: Recorded
) -> None:
    job = world.submit("a")
    world.set_target(job, 1)
    while not world.store.journal.decisions(job):
        world.traced_tick()
    view = decision_view(world.store.journal.decisions(job)[0])
    (span,) = (
        span
        for span in recorded.spans("record decisions")
        if span.attributes is not None and span.attributes["castor.plan"] == view.plan
    )
    assert parent_of(span) in {id_of(decide) for decide in recorded.spans("decide")}


def test_a_refused_call_is_a_span_with_its_error(recorded: Recorded, tmp_path: Path) -> None:
    world = World(tmp_path)
    provider = MeteredProvider("file", world.cloud, Meters(world.clock), recorded.traces.span)
    with recorded.traces.tick(), pytest.raises(InsufficientCapacity), provider._call("launch"):
        raise InsufficientCapacity("none left")
    span = recorded.only("file launch")
    assert not span.status.is_ok
    assert [event.name for event in span.events] == ["exception"]


def test_links_to_what_woke_the_loop_are_bounded_and_given_once(recorded: Recorded) -> None:
    recorded.traces.woke()  # no span is open
    for _ in range(100):
        with recorded.traces.span("report"):
            recorded.traces.woke()
    for _ in range(2):
        with recorded.traces.tick():
            pass
    assert [len(span.links) for span in recorded.spans("tick")] == [32, 0]


def test_log_lines_of_a_tick_have_its_trace(recorded: Recorded) -> None:
    record = logging.LogRecord("castor", logging.INFO, "", 1, "text", (), None)
    with recorded.traces.tick():
        line = json.loads(JsonFormatter().format(record))
    trace_id = recorded.only("tick").get_span_context().trace_id
    assert line["trace_id"] == f"{trace_id:032x}"
    assert "trace_id" not in json.loads(JsonFormatter().format(record))


def test_traces_are_off_unless_a_receiver_is_named() -> None:
    assert type(open_traces(None, {}, "1")) is NoTraces
    require_traces(None, {})
    for environment in (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"},
    ):
        traces = open_traces(None, environment, "1")
        assert isinstance(traces, Traces)
        traces.close()


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://localhost", "http://", ""])
def test_a_receiver_is_a_url(url: str) -> None:
    with pytest.raises(SpecError, match=r"--traces: .* must be like http://localhost:4318"):
        require_traces(url, {})


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(SpecError, match=r"pip install 'castor-autoscaler\[telemetry\]'"):
        require_traces("http://localhost:4318", {})


def test_a_controller_without_traces_imports_none_of_it() -> None:
    program = (
        "import sys, autoscaler.main\n"
        "from autoscaler.telemetry.traces import open_traces\n"
        "open_traces(None, {}, '1').close()\n"
        "ours = ('opentelemetry.sdk', 'opentelemetry.exporter')\n"  # FastAPI imports the API
        "assert not [name for name in sys.modules if name.startswith(ours)]\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
