"""Replicas of several ranks that shard the model among them, as real processes."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine, TrainingDirective
from tests.training.fleet import Fleet, ReplicaProcess, roster_of, wait_until
from tests.training.traces import go_on, is_training

SCRIPT = "sharded.py"
STEPS_OF_EPOCH = 4
# A replica that joins late has made more steps: then the DDP run is made again, and longer.
EPOCHS_OF_DDP = 60
ENDLESS = {"EPOCHS": "100000"}
# Several micro-steps a step: a batch of 30 on 2 or 4 ranks.
ACCUMULATING = BatchSpec(device_maximum=4)


@pytest.fixture(params=list(Engine))
def engine(request: pytest.FixtureRequest) -> Engine:
    return cast(Engine, request.param)


@pytest.fixture
def fleet(tmp_path: Path, engine: Engine) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path), batch=ACCUMULATING)
    yield fleet
    fleet.stop()


class PlainRun:
    """Weights after each step of the same network, whole in one DDP run of four ranks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._weights: dict[int, dict[str, Any]] = {}

    def weights(self, steps: int) -> dict[int, dict[str, Any]]:
        """Return the weights after so many steps at least, from a longer run if need be."""
        if steps > len(self._weights):
            self._train(max(EPOCHS_OF_DDP, -(-steps // STEPS_OF_EPOCH)))
        return self._weights

    def _train(self, epochs: int) -> None:
        directory = self._directory / str(epochs)
        directory.mkdir()
        fleet = Fleet(directory, lighthouse=None)
        settings = {"PLAIN": "1", "EPOCHS": str(epochs), "STEP_SECONDS": "0"}
        replica = fleet.start(SCRIPT, ranks=4, **settings)
        assert replica.wait(90) == 0, _logs(replica)
        fleet.stop()
        self._weights = {
            line["step"]: {name: torch.tensor(part) for name, part in line["parts"].items()}
            for line in replica.steps()
            if line["committed"]
        }


@pytest.fixture(scope="module")
def run_of_ddp(tmp_path_factory: pytest.TempPathFactory) -> PlainRun:
    return PlainRun(tmp_path_factory.mktemp("ddp"))


def _logs(*replicas: ReplicaProcess) -> str:
    paths = itertools.chain.from_iterable(replica.logs for replica in replicas)
    return "\n".join(path.read_text() for path in paths if path.exists())


def _whole(parts: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Return whole weights from the parts of ranks in order."""
    return {
        name: torch.cat([torch.tensor(part[name]) for part in parts if part[name]])
        for name in parts[0]
    }


def _committed(replica: ReplicaProcess, rank: int) -> dict[int, Any]:
    return {line["step"]: line for line in replica.steps(rank) if line["committed"]}


def _require_weights(replica: ReplicaProcess, ranks: int, run: PlainRun) -> int:
    """Check the weights after all steps of all ranks; return their number."""
    by_rank = [_committed(replica, rank) for rank in range(ranks)]
    expected = run.weights(1 + max(by_rank[0]))
    steps = set(by_rank[0]).intersection(*by_rank)
    for step in steps:
        whole = _whole([lines[step]["parts"] for lines in by_rank])
        for name, weight in expected[step].items():
            difference = (whole[name].double() - weight.double()).abs().max()
            assert difference < 1e-6 * weight.abs().max(), f"{name} after step {step}"
    return len(steps)


def test_through_a_join_a_kill_and_another_join_all_steps_are_those_of_ddp(
    fleet: Fleet, run_of_ddp: PlainRun
) -> None:
    first = fleet.start(SCRIPT, ranks=2, **ENDLESS)
    wait_until(lambda: first.step > 5, description="the first replica")
    second = fleet.start(SCRIPT, ranks=2, SEED="1", **ENDLESS)
    wait_until(lambda: is_training(first, 2), description="two replicas")
    go_on([first, second], 20)
    second.kill()
    wait_until(lambda: is_training(first, 1), description="going on alone")
    go_on([first], 5)
    third = fleet.start(SCRIPT, ranks=2, SEED="2", **ENDLESS)
    wait_until(lambda: is_training(first, 2), description="another replica")
    go_on([first, third], 20)
    for replica in fleet.replicas:
        replica.kill()
    counts = [_require_weights(each, 2, run_of_ddp) for each in fleet.replicas]
    assert counts[0] > 50
    assert min(counts[1:]) > 10
    lines = [line for line in first.steps() if line["is_last"]]
    assert sum(not line["committed"] for line in lines) <= 1, "a kill costs one step at most"
    assert any(not line["is_last"] for line in first.steps()), "steps have several batches"
    assert "Traceback" not in _logs(first, third)


def test_a_replica_of_two_copies_trains_with_one_of_one_copy(
    fleet: Fleet, run_of_ddp: PlainRun
) -> None:
    """A job trains so while it moves to instances with twice as many devices."""
    first = fleet.start(SCRIPT, ranks=2, **ENDLESS)
    wait_until(lambda: first.step > 3, description="the first replica")
    second = fleet.start(SCRIPT, ranks=4, COPIES="2", SEED="1", **ENDLESS)
    wait_until(lambda: is_training(first, 2), description="both replicas")
    go_on([first, second], 10)
    first.direct(TrainingDirective(drain=True))
    assert first.wait(60) == 0
    wait_until(lambda: is_training(second, 1), description="going on alone")
    go_on([second], 3)
    third = fleet.start(SCRIPT, ranks=2, SEED="2", **ENDLESS)
    wait_until(lambda: is_training(second, 2), description="a joiner with fewer copies")
    go_on([second, third], 5)
    for replica in fleet.replicas:
        replica.kill()
    assert _require_weights(first, 2, run_of_ddp) > 10
    assert _require_weights(second, 2, run_of_ddp) > 15
    parts = [
        {step: line["parts"] for step, line in _committed(second, rank).items()}
        for rank in range(4)
    ]
    both = [
        {step: line["parts"] for step, line in _committed(first, rank).items()}
        for rank in range(2)
    ]
    steps = set(parts[0]).intersection(parts[2], both[0])
    assert len(steps) > 5
    assert all(parts[0][step] == parts[2][step] == both[0][step] for step in steps)


def test_the_loss_of_one_rank_ends_its_replica_and_no_other(fleet: Fleet) -> None:
    first, second = (fleet.start(SCRIPT, ranks=2, **ENDLESS) for _ in range(2))
    wait_until(lambda: is_training(first, 2) or is_training(second, 2), description="both")
    go_on([first, second], 5)
    os.killpg(second.ranks[1].pid, signal.SIGKILL)
    assert second.ranks[0].wait(60) != 0, "a rank can't train with a part of the model"
    wait_until(lambda: is_training(first, 1), description="going on alone")
    go_on([first], 5)
    assert "Traceback" not in _logs(first)


def test_copies_of_a_sharded_model_train_as_ddp(tmp_path: Path, run_of_ddp: PlainRun) -> None:
    fleet = Fleet(tmp_path, batch=ACCUMULATING)
    replica = fleet.start(SCRIPT, ranks=4, COPIES="2", EPOCHS="10", STEP_SECONDS="0")
    assert replica.wait(60) == 0, _logs(replica)
    fleet.stop()
    assert _require_weights(replica, 2, run_of_ddp) >= 30
    by_rank = [_committed(replica, rank) for rank in range(4)]
    for step in by_rank[0]:
        assert by_rank[0][step]["parts"] == by_rank[2][step]["parts"], step
        assert len({lines[step]["norm"] for lines in by_rank}) == 1, step


@pytest.mark.parametrize(
    ("ranks", "environment", "here"),
    [
        (3, {}, "sharded over 3 ranks here"),
        (2, {"PLAIN": "1"}, "not sharded here"),
    ],
)
def test_a_joiner_with_another_mesh_is_refused_by_name(
    tmp_path: Path, ranks: int, environment: dict[str, str], here: str
) -> None:
    fleet = Fleet(tmp_path)
    first = fleet.start(SCRIPT, ranks=2, **ENDLESS)
    wait_until(lambda: first.step > 3, description="the first replica")
    other = fleet.start(SCRIPT, ranks=ranks, **ENDLESS, **environment)
    assert other.ranks[0].wait(60) != 0
    go_on([first], 5)
    fleet.stop()
    assert f"the model is {here} and sharded over 2 ranks on replica r0" in _logs(other)
    assert is_training(first, 1)


def test_a_pass_without_memory_ends_the_replica_and_the_next_start_takes_half(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path)
    first = fleet.start(SCRIPT, ranks=2, **ENDLESS)
    wait_until(lambda: first.step > 3, description="the first replica")
    second = fleet.start(SCRIPT, ranks=2, OUT_OF_MEMORY_AT="8", **ENDLESS)
    assert second.ranks[1].wait(60) != 0
    assert second.ranks[0].wait(60) != 0, "its collectives fail"
    wait_until(lambda: second.of_kind("device limit"), description="the message to the agent")
    assert second.of_kind("device limit")[0]["examples"] in (3, 4), "it had 7 or 8 examples"
    go_on([first], 5)
    fleet.stop()
    assert "Traceback" not in _logs(first)
