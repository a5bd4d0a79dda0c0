"""Random numbers of ranks, and state of a script's own, over joins, drains and crashes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from autoscaler.domain.training import Engine, TrainingDirective
from autoscaler.training.data.orders import Shuffled
from autoscaler.training.data.sampler import ElasticSampler, dealt
from autoscaler.training.steps.streams import Stream, Use, begin_stream
from tests.training.alone import opened, script
from tests.training.fleet import Fleet, roster_of, wait_until, whole_lines
from tests.training.scripts import dropout
from tests.training.traces import is_training

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
SCRIPT = "dropout.py"


@pytest.fixture
def fleet(tmp_path: Path, engine: Engine) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path), checkpoint_interval_seconds=0.5)
    yield fleet
    fleet.stop()


def _undisturbed(monkeypatch: pytest.MonkeyPatch, steps: int) -> list[dict[str, Any]]:
    """The first steps of the run on one rank."""
    monkeypatch.setenv("EPOCHS", "100000")
    model, optimizer = dropout.made()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    own: dict[str, Any] = {"average": average, "seen": 0, "patience": dropout.Patience()}
    monkeypatch.setenv("LOGICAL_RANKS", "4")
    with dropout.opened(model, optimizer, own) as job:
        lines = dropout.trained(job, model, average, own)
        return list(islice((line for line in lines if line["committed"]), steps))


def _traced(fleet: Fleet) -> list[list[dict[str, Any]]]:
    paths = [
        path for each in fleet.replicas for path in each.trace.parent.glob(each.trace.name + "*")
    ]
    return [whole_lines(path) for path in paths]


def _require_undisturbed(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    committed = [line for lines in _traced(fleet) for line in lines if line["committed"]]
    expected = _undisturbed(monkeypatch, max(line["step"] for line in committed))
    assert len(expected) >= 20
    for line in committed:
        same = expected[line["step"] - 1]
        for name in ("weights", "average", "seen", "patience", "rate", "scale"):
            assert line[name] == pytest.approx(same[name], abs=1e-6), (line["step"], name)


@pytest.mark.parametrize(("instances", "ranks"), [(1, 2), (1, 4), (2, 2)])
def test_logical_ranks_make_runs_equal_at_any_size(
    monkeypatch, fleet: Fleet, instances: int, ranks: int
) -> None:
    for _ in range(instances):
        fleet.start(SCRIPT, ranks, STEP_SECONDS="0.05", LOGICAL_RANKS="4")
    assert [replica.wait(120) for replica in fleet.replicas] == [0] * instances
    _require_undisturbed(monkeypatch, fleet)


@pytest.mark.parametrize("ranks", [2, 4])
def test_workers_draw_the_same_numbers_at_any_size(monkeypatch, fleet: Fleet, ranks: int) -> None:
    settings = {"STEP_SECONDS": "0.02", "LOGICAL_RANKS": "4"}
    replica = fleet.start(SCRIPT, ranks, **settings, WORKERS=str(ranks // 2))
    assert replica.wait(120) == 0
    monkeypatch.setenv("WORKERS", "0")
    _require_undisturbed(monkeypatch, fleet)


@pytest.mark.parametrize("engine", list(Engine))
def test_state_travels_at_joins_drains_and_crashes(monkeypatch, fleet: Fleet) -> None:
    """One run: a join, the drain of the first replica, a crash of all, and a restart.

    Weights and their average, the scaler, the schedule and an early stop are those of the run
    that nothing disturbs.
    """
    monkeypatch.setenv("SCALER", "1")
    settings = {"STEP_SECONDS": "0.05", "LOGICAL_RANKS": "4", "EPOCHS": "100000"}
    first = fleet.start(SCRIPT, **settings)
    wait_until(lambda: first.step > 20)
    second = fleet.start(SCRIPT, 2, **settings)
    wait_until(lambda: is_training(first, 2), description="two replicas")
    joined = second.step
    wait_until(lambda: second.step > joined + 20)
    first.direct(TrainingDirective(drain=True))
    assert first.wait(60) == 0
    drained = second.step
    wait_until(lambda: second.step > drained + 40)
    second.kill()
    third = fleet.start(SCRIPT, **settings)
    wait_until(lambda: third.step > drained + 60, description="the third to go on")
    third.kill()
    resumed = [line["step"] for line in third.steps() or _traced(fleet)[-1]]
    assert 1 < resumed[0] <= max(line["step"] for lines in _traced(fleet)[:-1] for line in lines)
    _require_undisturbed(monkeypatch, fleet)


def test_ranks_and_steps_share_no_masks_by_default(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.start(SCRIPT, 2, STEP_SECONDS="0.02", EPOCHS="100000")
    first, second = fleet.replicas
    wait_until(lambda: is_training(first, 2) or is_training(second, 2), description="two replicas")
    at = max(first.step, second.step)
    wait_until(lambda: min(first.step, second.step) > at + 20)
    for replica in fleet.replicas:
        replica.kill()
    masks: dict[int, list[str]] = defaultdict(list)
    for lines in _traced(fleet):
        for line in lines:
            if line["committed"] and line["members"] == 2:
                masks[line["step"]].append(str(line["mask"]))
    shared = [step for step, of_step in masks.items() if len(of_step) == 4]
    assert len(shared) > 10
    drawn = [mask for step in shared for mask in masks[step]]
    assert len(set(drawn)) == len(drawn)


def test_python_and_numpy_are_seeded_with_logical_ranks_alone() -> None:
    def numbers(seeds_all: bool, part: int = 0) -> tuple[float, float]:
        begin_stream(0, 3, Stream(1, part), Use.BATCH, seeds_all)
        return random.random(), float(np.random.random())

    assert numbers(True) == numbers(True) != numbers(True, part=1)
    assert numbers(False) != numbers(False)


def test_torch_is_seeded_without_manual_seed_which_formats_stacks(monkeypatch) -> None:
    monkeypatch.setattr(torch, "manual_seed", lambda number: pytest.fail("formats stacks"))
    begin_stream(0, 3, Stream(1, 0), Use.BATCH, seeds_all=False)
    drawn, number = torch.rand(3), torch.initial_seed()
    monkeypatch.undo()
    torch.manual_seed(number)
    assert torch.equal(drawn, torch.rand(3))


def test_devices_in_use_are_seeded_too(monkeypatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    begin_stream(0, 3, Stream(1, 0), Use.BATCH, seeds_all=False)
    assert seeded == [torch.initial_seed()]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_shares_are_dealt_whole(ranks: int) -> None:
    indices = ElasticSampler(Shuffled(64, 0)).take(0, 0, 22)
    seen, weights, examples = [], 0.0, []
    for rank in range(ranks):
        own, places = dealt(indices, 4, rank, ranks, 2, least=1)
        assert len(places) == len(own.micro_steps) > 0
        weights += sum(own.weights)
        if sum(own.weights) > 0:
            seen += places
            examples += [index for part in own.micro_steps for index in part]
    assert weights == pytest.approx(1.0)
    assert sorted(seen) == [(share, part) for share in range(4) for part in range(2)]
    assert sorted(examples) == sorted(indices.tolist())


@pytest.mark.parametrize("count", [0, -1, 17])
def test_logical_ranks_must_fit_the_batch(count: int) -> None:
    model, optimizer = dropout.made()
    with pytest.raises(ValueError, match="from 1 to batch_size=16"):
        opened(script(model, optimizer, dropout.data(), logical_ranks=count))
