"""Losses with weights of the script's: the gradient is that of the mean over all of the step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.gradients.sampling import SamplingBudget
from tests.training.alone import allow, opened, script
from tests.training.fleet import Fleet, ReplicaProcess, wait_until
from tests.training.scripts.sequences import BATCH, EXAMPLES, Sequences, loss_of, made
from tests.training.traces import is_training

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.stop()


def _plain(epochs: int, clip: float | None = None) -> list[dict[str, Any]]:
    """Return the trace of a plain loop; a step without tokens moves nothing."""
    model, optimizer = made()
    lines = []
    for _ in range(epochs):
        for begin in range(0, EXAMPLES, BATCH):
            optimizer.zero_grad()
            loss, count = loss_of(model, Sequences().tokens[begin : begin + BATCH])
            norm = None
            if count > 0:
                loss.backward()
                if clip is not None:
                    norm = float(nn.utils.clip_grad_norm_(model.parameters(), clip))
                optimizer.step()
            total = float(sum(each.detach().sum() for each in model.parameters()))
            lines.append({"loss": loss.item(), "norm": norm, "weights": total, "tokens": count})
    return lines


def _require_equal(traced: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
    for line in traced:
        if not line["committed"]:
            continue
        expected = plain[line["step"] - 1]
        assert line["skipped"] == (expected["tokens"] == 0)
        if not math.isnan(line["loss"]):
            assert line["loss"] == pytest.approx(expected["loss"], abs=1e-6)
        if line["norm"] is not None:
            assert line["norm"] == pytest.approx(expected["norm"], abs=1e-6)
        assert line["weights"] == pytest.approx(expected["weights"], abs=1e-6)


def _traced(replica: ReplicaProcess) -> list[dict[str, Any]]:
    paths = replica.trace.parent.glob(f"{replica.trace.name}*")
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("micro_steps", [1, 2, 5])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_one_rank_trains_as_a_plain_loop(monkeypatch, micro_steps: int, clip) -> None:
    allow(monkeypatch, BatchSpec(BATCH, BATCH, math.ceil(BATCH / micro_steps), adaptive=False))
    model, optimizer = made()
    lines = []
    with session(
        model, optimizer, Sequences(), batch_size=BATCH, shuffle=False, max_grad_norm=clip
    ) as job:
        for tokens in job.batches(epochs=4):
            loss, count = loss_of(job.model, tokens)
            step = job.step(loss, weight=count)
            if step.is_last:
                lines.append(
                    {
                        "step": step.number,
                        "committed": step.committed,
                        "skipped": step.skipped,
                        "loss": job.mean(step.loss),
                        "norm": None if step.gradient_norm is None else float(step.gradient_norm),
                        "weights": float(sum(each.detach().sum() for each in model.parameters())),
                    }
                )
    assert len(lines) == 4 * EXAMPLES // BATCH
    _require_equal(lines, _plain(4, clip))


@pytest.mark.parametrize(("instances", "ranks"), [(1, 2), (2, 1), (2, 2)])
def test_ranks_train_as_a_plain_loop(fleet: Fleet, instances: int, ranks: int) -> None:
    """Before the second instance has joined, the first trains alone, to the same end."""
    settings = {"EPOCHS": "8", "CLIP": "1", "MEMBERS": str(instances)}
    replicas = [fleet.start("sequences.py", ranks, **settings) for _ in range(instances)]
    assert [replica.wait(120) for replica in replicas] == [0] * instances
    plain = _plain(8, clip=1.0)
    for replica in replicas:
        traced = _traced(replica)
        assert max(line["members"] for line in traced) == instances
        assert traced[-1]["step"] == len(plain)
        _require_equal(traced, plain)


def test_a_scaler_unscales_before_the_gradient_is_divided() -> None:
    weights = []
    for scaler in (None, GradScaler("cpu", init_scale=2.0**10)):
        model, optimizer = made()
        with session(
            model, optimizer, Sequences(), batch_size=BATCH, shuffle=False, scaler=scaler
        ) as job:
            for tokens in job.batches(epochs=2):
                loss, count = loss_of(job.model, tokens)
                job.step(loss, weight=torch.tensor(count))
            assert job._parts.state.counters.skipped_steps == 0
        weights.append(torch.cat([each.detach().reshape(-1) for each in model.parameters()]))
    assert torch.allclose(*weights, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 512.0])
def test_equal_weights_are_no_weights(monkeypatch, scale: float) -> None:
    """Compare gradients, and the squares for the noise scale."""
    allow(monkeypatch, BatchSpec(BATCH, 2 * BATCH, BATCH, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 1)
    squares = []
    for given in (False, True):
        model, optimizer = made()
        job, parts = opened(script(model, optimizer, Sequences(), batch_size=BATCH))
        for tokens in job.batches(epochs=2):
            loss = job.model(tokens).square().mean()
            job.step(loss, weight=scale * len(tokens) if given else None)
        squares.append(parts.stepper.take_squares())
    assert squares[0].samples > 0
    for name in ("smalls", "small_square", "small_inverse", "big_square", "big_inverse"):
        assert getattr(squares[1], name) == pytest.approx(getattr(squares[0], name), rel=1e-5)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_that_cannot_be_used_are_refused(weight: float) -> None:
    model, optimizer = made()
    with (
        pytest.raises(ValueError, match="must be 0 or more"),
        session(model, optimizer, Sequences(), batch_size=BATCH) as job,
    ):
        tokens = next(job.batches(epochs=1))
        job.step(job.model(tokens).mean(), weight=weight)


def test_a_weight_for_a_part_of_a_step_is_refused(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(BATCH, BATCH, BATCH // 2, adaptive=False))
    model, optimizer = made()
    with (
        pytest.raises(ValueError, match="for all batches of a step, or for none"),
        session(model, optimizer, Sequences(), batch_size=BATCH) as job,
    ):
        for number, tokens in enumerate(job.batches(epochs=1)):
            job.step(job.model(tokens).mean(), weight=3 if number == 0 else None)


def test_replicas_that_differ_in_weights_are_told(fleet: Fleet) -> None:
    first = fleet.start("sequences.py", EPOCHS="100000")
    second = fleet.start("sequences.py", EPOCHS="100000", UNWEIGHTED="1")
    wait_until(lambda: is_training(first, 2) or first.process.poll() is not None)
    assert first.wait(60) != 0 or second.wait(60) != 0
    log = first.log.read_text() + second.log.read_text()
    assert "1 of 2 replicas have given a weight" in log
