"""Devices that run out of memory: the step is lost, the process is not, and smaller shares follow.

On CPUs the script raises torch.OutOfMemoryError as a GPU would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine, TrainingDirective
from tests.training.fleet import Fleet, ReplicaProcess, roster_of, wait_until
from tests.training.traces import is_training, pauses

SCRIPT = "memory.py"


@pytest.fixture
def fleet(tmp_path: Path, engine: Engine) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path))
    yield fleet
    fleet.stop()


def start(fleet: Fleet, ranks: int = 1, **environment: str) -> ReplicaProcess:
    settings = {"EPOCHS": "100000", "STEP_SECONDS": "0.01", **environment}
    return fleet.start(SCRIPT, ranks, **settings)


def lost(replica: ReplicaProcess) -> list[dict[str, Any]]:
    return [line for line in replica.steps() if _is_lost(line)]


def _is_lost(line: dict[str, Any]) -> bool:
    return bool(line["is_last"]) and not line["committed"]


def sizes_after(replica: ReplicaProcess, step: int) -> set[int]:
    return {len(line["indices"]) for line in replica.steps() if line["step"] > step}


def limits(replica: ReplicaProcess) -> Any:
    return replica.reports[-1]["bounds"]["kind_maxima"] if replica.reports else []


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize(("ranks", "short_rank"), [(1, "0"), (2, "0"), (2, "1")])
def test_a_step_without_memory_is_lost_on_all_ranks_and_taken_again_in_smaller_parts(
    fleet: Fleet, phase: str, ranks: int, short_rank: str
) -> None:
    fits = "10" if ranks == 1 else "5"
    replica = start(fleet, ranks, FITS=fits, FROM="5", PHASE=phase, ON_RANK=short_rank, NORM="1")
    wait_until(lambda: replica.step > 30, description="steps after the one without memory")
    share = 32 // ranks
    wait_until(lambda: limits(replica) == [["cpu-core", share // 4]], "the limit")
    assert len(lost(replica)) == 2, "16 and 8 examples, or 8 and 4, are tried one after the other"
    assert sizes_after(replica, 8) == {share // 4}
    assert all(rank.poll() is None for rank in replica.ranks)
    replica.kill()
    traces = [replica.steps(rank) for rank in range(ranks)]
    given_up = [line for line in traces[int(short_rank)] if _is_lost(line)]
    assert not any(line["holds"] for line in given_up), "the graph of a lost step is freed"
    taken = Counter(index for lines in traces for index in _learnt_from(lines, steps=16))
    assert taken == Counter(range(512)), "each example of the first pass once"


def _learnt_from(lines: list[dict[str, Any]], steps: int) -> Iterator[int]:
    """Yield the examples of the first steps that were committed."""
    waiting: list[int] = []
    for line in lines:
        waiting += line["indices"]
        if line["is_last"]:
            if line["committed"] and line["step"] <= steps:
                yield from waiting
            waiting = []


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_instance_without_memory_costs_the_others_one_step(fleet: Fleet, phase: str) -> None:
    first = start(fleet)
    wait_until(lambda: first.step > 0, description="the instance that decides and reports")
    second = start(fleet, FITS="8", FROM="20", PHASE=phase)
    wait_until(lambda: second.step > 60, description="steps after the one without memory")
    wait_until(lambda: limits(first) == [["cpu-core", 8]])
    assert [len(lost(replica)) for replica in (first, second)] == [1, 1]
    assert [pause["kind"] for pause in pauses(first)] == ["join"], "no instance is lost"
    for replica in fleet.replicas:
        replica.kill()
    weights = [
        {line["step"]: line["weight"] for line in replica.steps() if line["committed"]}
        for replica in (first, second)
    ]
    both = weights[0].keys() & weights[1].keys()
    assert len(both) > 30
    assert all(weights[0][step] == pytest.approx(weights[1][step], rel=1e-9) for step in both)


def test_a_limit_holds_for_joiners_and_later_starts(fleet: Fleet) -> None:
    first = start(fleet, FITS="8", FROM="5")
    wait_until(lambda: limits(first) == [["cpu-core", 8]])
    second = start(fleet)
    wait_until(lambda: is_training(first, 2) and second.step > 0)
    first.kill()
    at = second.step
    wait_until(lambda: second.step > at + 60 and limits(second) == [["cpu-core", 8]])
    assert sizes_after(second, at + 20) == {8}
    second.kill()
    fleet.setup = replace(fleet.setup, batch=BatchSpec(kind_maxima=(("cpu-core", 8),)))
    third = start(fleet, FITS="8")
    wait_until(lambda: third.step > 10)
    assert not lost(third)
    assert {len(line["indices"]) for line in third.steps()} == {8}


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("environment", [{}, {"NORM": "1"}])
def test_examples_that_do_not_fit_one_by_one_fail_the_job(
    fleet: Fleet, phase: str, environment: dict[str, str]
) -> None:
    replica = start(fleet, FITS="0", PHASE=phase, **environment)
    assert replica.wait(60) == 1
    least = 2 if environment else 1
    assert f"ran out of memory with {least} example" in replica.log.read_text()
    assert replica.of_kind("out of memory")


def told_limits(replica: ReplicaProcess) -> list[int]:
    return [message["examples"] for message in replica.of_kind("device limit")]


def test_memory_that_runs_out_in_the_loss_ends_the_process_and_is_remembered(
    fleet: Fleet,
) -> None:
    replica = start(fleet, FITS="16", FROM="60", PHASE="loss")
    assert replica.wait(60) == 1
    assert "CUDA out of memory" in replica.log.read_text()
    assert limits(replica) == [["cpu-core", 16]]
    assert told_limits(replica) == [16]
    assert not replica.of_kind("out of memory"), "a later start may succeed"


def test_a_rank_that_does_not_lead_tells_that_its_loss_has_run_out_of_memory(
    fleet: Fleet,
) -> None:
    replica = start(fleet, 2, FITS="8", FROM="5", PHASE="loss", ON_RANK="1")
    assert replica.ranks[1].wait(60) == 1
    wait_until(lambda: told_limits(replica) == [8], description="the word of the second rank")


def test_a_rank_that_does_not_lead_tells_that_its_loss_fits_no_example(fleet: Fleet) -> None:
    fleet.setup = replace(fleet.setup, batch=BatchSpec(kind_maxima=(("cpu-core", 1),)))
    replica = start(fleet, 2, FITS="0", PHASE="loss", ON_RANK="1")
    assert replica.ranks[1].wait(60) == 1
    wait_until(lambda: replica.of_kind("out of memory"), description="the word of the second rank")


@pytest.mark.parametrize("engine", list(Engine))
def test_an_instance_that_does_not_decide_tells_that_its_loss_has_run_out_of_memory(
    fleet: Fleet,
) -> None:
    first = start(fleet)
    wait_until(lambda: first.step > 0, description="the instance that decides and reports")
    second = start(fleet, FITS="8", FROM="20", PHASE="loss")
    assert second.wait(60) == 1
    wait_until(lambda: told_limits(second) == [8], description="the word of the second instance")
    assert not second.reports


def test_memory_that_runs_out_under_a_static_graph_is_remembered(fleet: Fleet) -> None:
    replica = start(fleet, FITS="16", FROM="20", PHASE="backward", STATIC_GRAPH="1")
    assert replica.wait(60) == 1
    assert told_limits(replica) == [16]


def test_a_batch_that_is_looked_at_and_does_not_fit_costs_one_step(tmp_path: Path) -> None:
    batch = BatchSpec(initial=32, maximum=256, device_maximum=128, adaptive=True)
    fleet = Fleet(tmp_path, batch=batch)
    flat = ThroughputParameters(0.02, 1e-5, 0.02, 1e-4, 0.01, 1e-4, 1.5)
    try:
        replica = start(fleet, FITS="64")
        wait_until(lambda: replica.step > 20)
        replica.direct(TrainingDirective(throughput=flat))
        wait_until(
            lambda: limits(replica) == [["cpu-core", 64]], description="a look at the largest"
        )
        at = replica.step
        wait_until(lambda: replica.step > at + 100, description="steps after the look")
        assert len(lost(replica)) == 1
        assert max(sizes_after(replica, 0)) == 128
        assert max(sizes_after(replica, at)) <= 64
        assert replica.process.poll() is None
    finally:
        fleet.stop()
