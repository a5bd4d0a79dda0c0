from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import Failure
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.domain.transfer import Transfer, TransferCount
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import NodeReport
from autoscaler.wire.node_reports import read_node_report
from tests.domain.test_report_rules import REPORT

USE = GpuUse(2, 0.5, 0.75, 10, 80)
BEAT = NodeReport("job-0-1", InstancePhase.TRAINING, 1, 1, 5.0, job="job")
FAILURE = Failure("job-0-1", 1, 1, "cause", "signature", 5, ("line",))
WHOLE = replace(
    BEAT,
    reports=(REPORT,),
    failure=FAILURE,
    is_done=True,
    reclaim_seconds=100.0,
    notes=("a note",),
    transfer=TransferCount(1.0, Transfer(1, 2)),
    rendezvous="10.0.0.1:4000",
    generation=2,
    is_generation_over=True,
    gpu_use=USE,
    time=TimeCount(1.0, TimeUse(60.0, 10.0), CostCategory.USEFUL),
)


def body(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(NodeReport, BEAT)), **changes}).encode()


def test_a_heartbeat_is_read_as_it_was_written() -> None:
    for report in (BEAT, WHOLE):
        assert read_node_report(encode(NodeReport, report)) == (report, ())


def test_a_key_of_a_later_agent_is_passed_over() -> None:
    assert read_node_report(body(mood="good")) == (BEAT, ())


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("reports.step", {"reports": [{"step": "x"}]}),
        ("reports", {"reports": ["x"]}),
        (
            "reports.bounds",
            {"reports": [{**asdict(REPORT), "bounds": {**asdict(REPORT.bounds), "initial": 0}}]},
        ),
        ("failure", {"failure": "it failed"}),
        ("notes", {"notes": 5}),
        ("reclaim_seconds", {"reclaim_seconds": "soon"}),
        ("transfer.transfer", {"transfer": {"begun_seconds": 1, "transfer": {"sent_bytes": -1}}}),
        ("rendezvous", {"rendezvous": "10.0.0.1"}),
        ("gpu_use.mean_share", {"gpu_use": {**asdict(USE), "mean_share": 1.5}}),
        ("gpu_use.busiest_share", {"gpu_use": {**asdict(USE), "busiest_share": "NaN"}}),
        ("gpu_use.memory_used_bytes", {"gpu_use": {**asdict(USE), "memory_used_bytes": 81}}),
        ("gpu_use.gpus", {"gpu_use": {**asdict(USE), "gpus": 0}}),
        ("rendezvous", {"rendezvous": "10.0.0.1:70000"}),
        ("rendezvous", {"rendezvous": "a host\n:1"}),
        ("generation", {"generation": -1}),
        ("is_done", {"is_done": "perhaps"}),
        ("is_done", {"is_done": 0}),
        ("reclaim_seconds", {"reclaim_seconds": "100"}),
        ("reclaim_seconds", {"reclaim_seconds": True}),
        ("reports.step", {"reports": [{**asdict(REPORT), "step": "5"}]}),
        ("reports.replicas", {"reports": [{**asdict(REPORT), "replicas": True}]}),
        ("failure.exit_code", {"failure": {**asdict(FAILURE), "exit_code": True}}),
    ],
)
def test_a_part_of_the_wrong_kind_is_left_out_by_its_name(
    place: str, changes: dict[str, Any]
) -> None:
    report, (refused, *_) = read_node_report(body(**changes))
    assert report == BEAT
    assert refused.startswith(place)


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", -1.0, 1e300])
def test_a_moment_that_can_not_be_is_left_out(seconds: object) -> None:
    report, refused = read_node_report(body(reclaim_seconds=seconds, started_seconds=seconds))
    assert report == replace(BEAT, started_seconds=None)
    assert {text.partition(":")[0] for text in refused} == {"reclaim_seconds", "started_seconds"}


def test_notes_are_bounded() -> None:
    report, _ = read_node_report(body(notes=["x" * 10_000] * 200))
    assert report.notes == ("x" * 500,) * 20


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[1]",
        b"[" * 100_000,
        b"{",
        b"\xff",
        body(attempt=10**30),
        body(attempt=0),
        body(attempt=True),
        body(devices_used="1"),
        body(devices_used=-1),
        body(phase="asleep"),
        body(instance=None),
    ],
    ids=range(12),
)
def test_what_is_no_heartbeat_is_refused(text: bytes) -> None:
    with pytest.raises(SpecError):
        read_node_report(text)


def test_a_heartbeat_with_a_number_that_is_too_long_is_refused_for_it() -> None:
    text = body().replace(b'"attempt": 1', b'"attempt": ' + b"1" * 5_000)
    with pytest.raises(SpecError, match="more than 4,300 digits"):
        read_node_report(text)
