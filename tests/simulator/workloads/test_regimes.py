"""Traces of jobs with regimes, and their training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.base import Member
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.training.regimes import RegimeTraining
from autoscaler.simulator.workloads.regimes import Schedule, ScheduledRegime, read_regimes
from autoscaler.simulator.workloads.traces import read_trace
from autoscaler.simulator.workloads.workload import Arrival

ROW = "LM (batch size 10)\tpython main.py\tlm\t--steps\t1\t1000\t2\tgns\t1\t-1.0\t900\t60"
JOB = {
    "job": 0,
    "gpus": 2,
    "epochs": 30,
    "samples_per_epoch": 1000,
    "regimes": [
        {"batch_size": 10, "epochs": 10, "epoch_seconds": 20.0},
        {"batch_size": 20, "epochs": 20, "epoch_seconds": 10.0},
    ],
}
SCHEDULE = Schedule(2, 1000, (ScheduledRegime(10, 10, 20.0), ScheduledRegime(20, 20, 10.0)))
ARRIVAL = Arrival("job-0", 60.0, "LM", 2, 10)
SETTINGS = TrainingSettings(pause_seconds=5.0)


def with_field(number: int, text: str) -> str:
    fields = ROW.split("\t")
    fields[number] = text
    return "\t".join(fields)


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "few.trace"
    path.write_text(f"{ROW}\n{with_field(11, '61.5')}\n")
    assert read_trace(path) == (ARRIVAL, Arrival("job-1", 61.5, "LM", 2, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ROW}\n{with_field(0, 'LM')}\n", r'few.trace:2: job_type: "LM" is not like'),
        (f"{with_field(6, '0')}\n", "few.trace:1: scale_factor: 0 is not above 0"),
        (f"{with_field(5, 'many')}\n", 'few.trace:1: total_steps: "many" is not a number'),
        (f"{with_field(7, 'fast')}\n", 'few.trace:1: mode: "fast" is none of static'),
        (f"{with_field(10, '-3')}\n", "few.trace:1: duration: -3 is not above 0"),
        (f"{ROW}\n{with_field(11, '59')}\n", "few.trace:2: arrival: 59 is before the row above"),
        (f"{ROW}\n{ROW[:-3]}\n", "few.trace:2: has 11 fields between tabs, not 12"),
        (ROW, "few.trace:1: ends within a line"),
    ],
)
def test_what_is_wrong_in_a_trace_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "few.trace"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        read_trace(path)


def test_regimes_are_read(tmp_path: Path) -> None:
    (tmp_path / "few.json").write_text(json.dumps([JOB]))
    schedules = read_regimes(tmp_path, Path("elsewhere/few.trace"), [ARRIVAL])
    assert schedules == {"job-0": SCHEDULE}
    assert (SCHEDULE.epochs, SCHEDULE.seconds) == (30, 400.0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[{", "few.json:1: is not JSON"),
        ("{}", "few.json: is not a list of jobs"),
        ("[7]", r"few.json: .*\[0\]: is not an object"),
        ("[]", "few.json: has no regimes of job-0 of few.trace"),
        (json.dumps([JOB, JOB]), "job: 0 occurs twice"),
        (json.dumps([JOB | {"job": "0"}]), 'job: "0" is not the number of a row'),
        (json.dumps([JOB | {"gpus": 4}]), "few.json: job 0: gpus: 4, but the trace says 2"),
        (json.dumps([JOB | {"epochs": 31}]), "job 0: epochs: 31, but its regimes have 30"),
        (json.dumps([JOB | {"regimes": []}]), "job 0: regimes: is not a list of at least one"),
        (
            json.dumps([JOB | {"regimes": [{"batch_size": 10, "epochs": 1.5}]}]),
            r"job 0: regimes\[0\]: epochs: 1.5 is not a whole number",
        ),
        (
            json.dumps([JOB]).replace("10.0}", "NaN}"),
            r'job 0: regimes\[1\]: epoch_seconds: "nan" is not a finite number above 0',
        ),
        (
            json.dumps([JOB]).replace('"epoch_seconds": 10.0', '"seconds": 1'),
            r"job 0: regimes\[1\]: epoch_seconds: is missing",
        ),
    ],
)
def test_what_is_wrong_in_regimes_is_named(tmp_path: Path, document: str, message: str) -> None:
    (tmp_path / "few.json").write_text(document)
    with pytest.raises(SpecError, match=message):
        read_regimes(tmp_path, Path("few.trace"), [ARRIVAL])


def test_regimes_that_are_not_there_are_missed(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"few.json: can't be read"):
        read_regimes(tmp_path, Path("few.trace"), [ARRIVAL])


def members(devices: int) -> tuple[Member, ...]:
    return (Member("i0", "node-000", "card", "card", devices),)


def training() -> RegimeTraining:
    return RegimeTraining(SCHEDULE, 10, SETTINGS, 100.0)


def test_a_run_takes_its_regimes_and_a_pause_for_each_start() -> None:
    job = training()
    assert job.exclusive_seconds == 405.0
    job.train_on(members(2))
    assert job.completes_before(1e9) == 505.0
    job.advance(205.0)
    job.train_on(())
    job.advance(300.0)
    assert job.progress_examples == 5000
    job.train_on(members(2))
    assert job.completes_before(1e9) == 605.0
    job.advance(605.0)
    assert job.is_complete
    assert [
        (span.from_seconds, span.to_seconds, span.batch and span.batch.total) for span in job.spans
    ] == [
        (100.0, 105.0, None),
        (105.0, 205.0, 10),
        (300.0, 305.0, None),
        (305.0, 405.0, 10),
        (405.0, 605.0, 20),
    ]


def test_how_long_a_regime_lasts_is_told_when_it_is_over() -> None:
    job = training()
    job.train_on(members(2))
    job.advance(205.0)
    truth = job.truth()
    assert truth.regimes is not None
    assert [(regime.epoch_seconds, regime.epochs_done) for regime in truth.regimes.regimes] == [
        (20.0, 5.0),
        (10.0, 0.0),
    ]
    assert (truth.step_seconds, truth.remaining_steps) == ({2: 0.2}, 2500.0)
    job.advance(355.0)
    truth = job.truth()
    assert truth.regimes is not None
    assert (truth.regimes.current, truth.regimes.epochs_done) == (1, 15.0)
    assert (truth.step_seconds, truth.remaining_steps) == ({2: 0.2}, 750.0)


def test_what_it_tells_is_what_it_does() -> None:
    job = training()
    job.train_on(members(2))
    job.advance(355.0)
    report = job.report()
    assert (report.progress_examples, report.total_examples) == (15_000, 30_000)
    assert report.batch.total == 20
    assert [
        (observation.device_batch, observation.step_seconds) for observation in report.observations
    ] == [
        (5, 0.2),
        (10, 0.2),
    ]


def test_other_devices_than_it_asked_for_are_refused() -> None:
    job = training()
    job.train_on(members(1))
    job.train_on(members(2))
    job.advance(101.0)
    job.train_on(members(4))
    with pytest.raises(Unprofiled, match="measured on 2 devices, not on 4"):
        job.advance(102.0)
