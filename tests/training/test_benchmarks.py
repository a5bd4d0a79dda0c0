"""Benchmarks of the training library run here, and measure or check what they say."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.goodput import BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from benchmarks.delay_proxy import DelayProxy
from benchmarks.gpu_instances import pauses
from benchmarks.soak import broken_passes
from benchmarks.training_overhead import check_ratios, compared, verdict

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _run(name: str, *arguments: str) -> tuple[int, Any]:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def _echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while piece := connection.recv(100):
            connection.sendall(piece)


def test_a_proxy_delays_each_direction_and_keeps_the_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_echo, args=(listener,), daemon=True).start()
        with (
            DelayProxy(listener.getsockname()[1]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection,
        ):
            proxy.delay_seconds = 0.2
            began = time.monotonic()
            connection.sendall(b"first")
            assert connection.recv(100) == b"first"
            assert time.monotonic() - began >= 0.4
            connection.sendall(b"second")
            proxy.delay_seconds = 0.0
            connection.sendall(b"third")
            received = b""
            while len(received) < len(b"secondthird"):
                received += connection.recv(100)
            assert received == b"secondthird"


def _blocks(*step_seconds: float) -> list[dict[str, float]]:
    return [
        {"is_checked": place % 4 in (0, 3), "step_seconds": seconds}
        for place, seconds in enumerate(step_seconds)
    ]


def test_the_ratio_of_the_check_is_taken_of_four_blocks_after_warming_up() -> None:
    warm_up = (9.0, 1.0, 1.0, 9.0)
    drift = [seconds + 0.1 * place for place, seconds in enumerate((1.2, 1.0, 1.0, 1.2))]
    assert check_ratios(_blocks(*warm_up)) == []
    assert check_ratios(_blocks(*warm_up, *drift, 5.0)) == [pytest.approx(1.35 / 1.15)]


def test_an_overhead_is_the_mean_difference_of_pairs_with_an_interval() -> None:
    drift = [0.080 + 0.001 * place for place in range(30)]
    pairs = [(bare, bare + 0.002 + 0.0001 * (-1) ** place) for place, bare in enumerate(drift)]
    row = compared(pairs)
    low, high = row["overhead_ms_interval"]
    assert row["overhead_ms"] == pytest.approx(2.0)
    assert 1.9 < low < 2.0 < high < 2.1, "the drift of the pairs does not widen the interval"
    assert row["overhead_percent"] == pytest.approx(100 * 2.0 / 94.5)
    assert row == compared(pairs), "the seed is fixed"


@pytest.mark.parametrize(
    ("replicas", "bare_ms", "interval", "target_ms", "answer"),
    [
        (1, 90.0, [0.2, 0.9], 1.0, "yes"),
        (1, 90.0, [0.2, 1.1], 1.0, "unclear"),
        (1, 90.0, [1.1, 1.2], 1.0, "no"),
        (1, 200.0, [1.1, 1.2], 2.0, "yes"),
        (2, 90.0, [2.0, 2.4], 2.5, "yes"),
    ],
)
def test_an_overhead_is_compared_with_its_target(
    replicas: int, bare_ms: float, interval: list[float], target_ms: float, answer: str
) -> None:
    row = {"bare_ms": bare_ms, "overhead_ms_interval": interval}
    assert verdict(replicas, row) == {"target_ms": target_ms, "within_target": answer}
    assert verdict(3, row) == {}


@pytest.mark.slow
def test_blocks_of_bare_ddp_and_of_replicas_take_turns() -> None:
    status, record = _run(
        *("training_overhead.py", "--json", "--replicas", "1", "2"),
        *("--pairs", "2", "--block-steps", "2", "--repeats", "1"),
    )
    assert status == 0
    assert [(row["replicas"], row["pairs"]) for row in record["rows"]] == [(1, 2), (2, 2)]
    assert all(row["bare_ms"] > 0 and row["castor_ms"] > 0 for row in record["rows"])


@pytest.mark.slow
def test_the_check_is_measured_at_each_length_of_step() -> None:
    status, rows = _run(
        *("training_overhead.py", "--check", "--json"),
        *("--seconds", "0", "--rounds", "1", "--block-steps", "2"),
    )
    assert status == 0
    assert [row["length_ms"] for row in rows] == [10, 50, 150]
    assert all(row["ratio"] > 0 and row["fours"] == 1 for row in rows)


def test_a_scaler_skips_the_step_with_an_infinite_gradient_in_a_process_group() -> None:
    """Run the script on the CPU; on a machine with a GPU it uses NCCL."""
    status, found = _run("gpu_scaler.py", "--device", "cpu", "--epochs", "3")
    assert (status, found["result"]) == (0, "passed"), found
    assert found["backend"] == "gloo" and found["skipped_steps"] == 1
    assert found["steps"] == 24


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["quorum", "roster"])
def test_instances_join_and_are_lost_in_the_check_for_gpus(engine: str) -> None:
    """Run the script on the CPU; on a machine with GPUs it uses NCCL."""
    status, found = _run("gpu_instances.py", "--device", "cpu", "--ranks", "2", "--engine", engine)
    assert (status, found["result"]) == (0, "passed"), found
    assert found["ranks"] == 6


def _lines(*replicas_and_times: tuple[int, float, bool]) -> list[dict[str, Any]]:
    return [
        {"replicas": replicas, "at": at, "committed": committed}
        for replicas, at, committed in replicas_and_times
    ]


def test_a_pause_is_what_a_change_takes_beyond_a_usual_step_after_it() -> None:
    alone = [(1, float(at), True) for at in range(4)]
    together = [(2, 10.0 + 2 * place, True) for place in range(4)]
    lost = [(2, 18.0, False)]
    after = [(1, 21.0, True), (1, 22.0, True)]
    lines = _lines(*alone, *together, *lost, *after)
    assert pauses(lines, 1, 2) == [10.0 - 3.0 - 2.0]
    assert pauses(lines, 2, 1) == [21.0 - 16.0 - 1.0]
    assert pauses(_lines(*alone), 1, 2) == []


def test_parts_of_a_session_are_put_on_bare_ddp_one_after_the_other() -> None:
    """Run the script on the CPU; on a machine with a GPU it uses larger models."""
    status, found = _run("gpu_overhead.py", "--tiny", "--steps", "2", "--rounds", "1")
    assert status == 0
    tiny = found["models"]["tiny"]
    parts = tiny["parts"]
    assert list(parts) == ["bare", "views", "unused", "hook", "commit", "check", "clip", "sample"]
    assert all(len(part["step_ms_by_round"]) == 1 for part in parts.values())
    assert parts["bare"]["ratio_to_bare"] == 1.0
    assert parts["sample"]["samples_a_step"] == 0.5, "every second step of a job that begins"
    assert 0 < tiny["checkpoint"]["pause_seconds"] < tiny["checkpoint"]["until_published_seconds"]


def test_parts_of_a_session_are_put_on_bare_fsdp2() -> None:
    status, found = _run("gpu_fsdp.py", "--model", "tiny", "--steps", "2", "--rounds", "1")
    assert status == 0
    assert list(found["parts"]) == ["bare", "check", "clip", "sample"]
    assert found["parts"]["bare"]["over_bare_ms"] == 0.0
    assert found["difference_of_movement"] < 0.02
    assert found["checkpoint"]["pause_seconds"] > 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_takes_two_sizes_and_continues_in_the_measurement_for_one_gpu() -> None:
    """Run the script on the CPU; on a machine with a GPU the job trains on it."""
    status, found = _run("gpu_job.py", "--device", "cpu", "--model", "tiny", "--seconds", "2")
    assert status == 0 and found["result"] == "passed"
    assert [size["instances"] for size in found["sizes"]] == [1, 2, 1]
    assert found["resumed_step"] >= found["checkpoint_step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["quorum", "roster"])
def test_a_second_process_joins_and_is_killed_in_the_measurement_for_one_gpu(engine: str) -> None:
    """Run on the CPU; on a machine with a GPU both processes train there, with sums by gloo."""
    status, found = _run(
        *("gpu_join_kill.py", "--device", "cpu", "--model", "tiny"),
        *("--rounds", "1", "--steps", "5", "--engine", engine),
    )
    assert (status, found["result"]) == (0, "passed"), found
    assert len(found["join_pause_seconds"]) == len(found["loss_pause_seconds"]) == 1
    assert found["lost_steps"] <= 1 and found["ranks"] == 2


def _pass_line(number: int, **changes: Any) -> dict[str, Any]:
    line = {"pass": number, "seen": 8 * number, "loss": 0.5 / number}
    return {**line, "least": float(number), "most": float(number), **changes}


def test_a_soak_breaks_on_any_example_taken_twice_and_any_other_loss() -> None:
    undisturbed = {number: _pass_line(number) for number in (1, 2)}
    good = [_pass_line(1), _pass_line(1), _pass_line(2, loss=0.25 * (1 + 1e-12))]
    assert broken_passes(good, undisturbed, 8) == []
    for change in ({"most": 3.0}, {"least": 1.0}, {"seen": 24}):
        (found,) = broken_passes([*good, _pass_line(2, **change)], undisturbed, 8)
        assert "not taken exactly 2 times" in found
    other_loss, disagreement = broken_passes([*good, _pass_line(2, loss=0.251)], undisturbed, 8)
    assert "0.251, undisturbed 0.25" in other_loss and "disagree" in disagreement


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["quorum", pytest.param("roster", marks=pytest.mark.slow)])
def test_a_soak_goes_on_where_its_last_run_ended(tmp_path: Path, engine: str) -> None:
    arguments = ("soak.py", str(tmp_path), "--commits", "5", "--engine", engine, "--json")
    status, found = _run(*arguments, "--kills", "1")
    assert (status, found["broken"]) == (0, [])
    status, found = _run(*arguments, "--kills", "3")
    assert (status, found["broken"], found["runs"]) == (0, [], 2)
    assert found["kills"] == {engine: 3}
    assert found["largest_difference"] < 1e-12
    with (tmp_path / "passes.jsonl").open("a") as ledger:
        ledger.write(json.dumps(_pass_line(1)) + "\n")
    status, found = _run(*arguments, "--kills", "3")
    assert status == 1 and found["broken"], "a pass that is not as it should be"


def test_a_difference_of_losses_is_compared_with_two_standard_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    compared_losses = importlib.import_module("convergence").compared
    alone = [1.0, 1.1, 0.9, 1.0]
    error = (2 * (0.02 / 3) / 4) ** 0.5
    same = compared_losses(alone, [loss + 1.9 * error for loss in alone])
    assert same["standard_error"] == pytest.approx(error)
    assert same["difference"] == pytest.approx(1.9 * error) and same["within"]
    for factor in (2.1, -2.1):
        assert not compared_losses(alone, [loss + factor * error for loss in alone])["within"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_elastic_runs_are_compared_with_runs_alone(tmp_path: Path) -> None:
    _, rows = _run(
        *("convergence.py", str(tmp_path), "--tasks", "digits", "--seeds", "2", "--json"),
        *("--step-seconds", "0.02"),
    )
    assert [row["kind"] for row in rows] == ["alone", "elastic", "adaptive"]
    assert [row["largest_batch"] > 32 for row in rows[:2]] == [False, False]
    assert rows[1]["difference"] == pytest.approx(0, abs=1e-4)


@pytest.fixture
def prediction(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("prediction")


def _resize(prediction: Any, task: str = "digits", load: float = 1.0) -> Any:
    """A change from 1 to 2 replicas: steps of 0.1 s at any batch were expected."""
    resized_job = importlib.import_module("resized_job")
    model = ThroughputModel(
        device_kind="cpu-core",
        point=ThroughputParameters(0.1, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1.0),
        draws=(ThroughputParameters(0.1, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1.0),) * 32,
        measured=frozenset({(1, 1), (2, 2)}),
        size_errors=(),
    )
    both = [
        StepObservation("cpu-core", 2, 2, 32, 0, 0.2, 0.0, 30),
        StepObservation("cpu-core", 2, 2, 16, 0, 0.2, 0.0, 10),
    ]
    return prediction.Resize(
        task=task,
        seed=0,
        number=0,
        how="join",
        before=1,
        after=2,
        model=model,
        noise=NoiseScale(32, 1.0, 2.0, 0.0),
        bounds=BatchBounds(32, 64, 64, adaptive=True),
        stretches=tuple(prediction.Stretch(each, 2 * each.device_batch) for each in both),
        steps=tuple(resized_job.StepLine(at, 64) for at in (0.0, 0.25)),
        reported_noise=NoiseScale(32, 1.0, 2.0, 0.0),
        states="",
        load=load,
        noise_examples=float("inf"),
    )


def test_predicted_goodput_is_compared_with_throughput_times_efficiency(prediction: Any) -> None:
    resize = _resize(prediction)
    judged = prediction.goodput(resize)
    assert judged.predicted == pytest.approx(64 * 0.75 / 0.1)
    assert judged.measured == pytest.approx((0.75 * 64 * 0.75 + 0.25 * 32) / 0.2)
    throughput = prediction.throughput(resize)
    assert throughput.predicted == pytest.approx(64 / 0.1), "at the batch that was run longest"
    assert throughput.measured == pytest.approx(64 / 0.2)
    assert prediction.goodput_by_clock(resize).measured == pytest.approx(64 * 0.75 / 0.25)
    of_all = prediction.goodput_of_all(resize)
    assert of_all.measured == pytest.approx((0.75 * 64 + 0.25 * 32) / 0.2), "noise without end"


def test_predictions_are_told_by_size_and_task_and_load(prediction: Any) -> None:
    resizes = [_resize(prediction), _resize(prediction, "resnet", 9.0)]
    rows = prediction.rows_of(resizes)
    found = {row["which"]: row["resizes"] for row in rows if row["of"] == "throughput"}
    of_tasks = {"digits": 1, "chargpt": 0, "resnet": 1}
    of_sizes = {"all": 2, "seen": 2, "not seen": 0}
    assert found == {**of_sizes, **of_tasks, "load up to 5.0": 1, "load above 5.0": 1}
    assert prediction.facts_of(resizes)["efficiency_quartiles"] == pytest.approx([0.75] * 3)


def test_a_prediction_keeps_to_the_target_by_its_error_and_by_its_bands(prediction: Any) -> None:
    def row(*cases: tuple[float, bool]) -> Any:
        judged = [
            prediction.Judged(value, 0.5, 2.0 if held else 0.9, 1.0) for value, held in cases
        ]
        return prediction.row_of(judged)

    good = [(1.09, True)] * 18 + [(0.8, True), (0.8, False)]
    found = row(*good)
    assert (found["median"], found["median_absolute"]) == pytest.approx((0.09, 0.09))
    assert found["held"] == 0.95 and prediction.is_reached(found)
    low, high = found["held_interval"]
    assert 0.75 < low < 0.95 < high < 1.0
    assert not prediction.is_reached(row(*[(1.11, True)] * 9, (1.0, False))), "too large an error"
    assert not prediction.is_reached(row(*[(1.0, True)] * 10)), "bands that are too wide"
    assert not prediction.is_reached(row(*[(1.0, True)] * 8, *[(1.0, False)] * 2))
    assert prediction.row_of([]) == {"resizes": 0}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_goodput_is_predicted_before_a_change_of_size(tmp_path: Path) -> None:
    arguments = ("prediction.py", str(tmp_path), "--seeds", "1", "--resizes", "1", "--json")
    _, found = _run(*arguments)
    assert found["facts"]["resizes"] == 1
    assert all(row["resizes"] == 1 for row in found["rows"] if row["which"] == "all")
    assert _run(*arguments)[1] == found, "what was measured is kept"


def test_the_pause_of_a_sharded_checkpoint_is_measured_on_two_ranks() -> None:
    status, record = _run(
        "checkpoint_pause.py", "--json", "--millions", "8", "--saves", "2", "--ranks", "2"
    )
    assert status == 0
    assert record["ranks"] == 2
    assert record["part_mb"] == pytest.approx(8.4 * 3 * 4 / 2, rel=0.01), "weights, two averages"
    assert 0 < record["copy_ms"] <= record["pause_ms"] < record["background_ms"]
