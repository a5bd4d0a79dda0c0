"""Optimizers that step in turns, each by a loss of its own of the same batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.amp.grad_scaler import GradScaler

from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine
from autoscaler.training import session
from autoscaler.training.steps.learning_rate import LearningRateInputs, unchanged
from autoscaler.training.steps.phases import Undo
from autoscaler.training.steps.scaled_optimizer import ScaledOptimizer
from tests.training.alone import allow, opened, script
from tests.training.fleet import Fleet, roster_of, wait_until
from tests.training.scripts import adversaries
from tests.training.scripts.adversaries import loss_of_discriminator, loss_of_generator

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

EPOCHS = 4


@pytest.fixture(params=["alone", "in DDP"])
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "alone":
        yield
        return
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _batches() -> Iterator[tuple[Tensor, Tensor]]:
    examples, noise = adversaries.data().tensors
    for _ in range(EPOCHS):
        yield from zip(
            examples.split(adversaries.BATCH), noise.split(adversaries.BATCH), strict=True
        )


def _plain(critic_steps: int = 1, generator_every: int = 1) -> list[float]:
    model, (first, second) = adversaries.made()
    for number, (examples, noise) in enumerate(_batches()):
        for _ in range(critic_steps):
            fakes = model("generator", noise)
            loss_of_discriminator(model, examples, fakes).backward()
            first.step()
            first.zero_grad()
        if number % generator_every == 0:
            second.zero_grad()
            loss_of_generator(model, fakes).backward()
            second.step()
            second.zero_grad()
            first.zero_grad()
    return adversaries.seen(model, [first, second])


def _session(model: nn.Module, optimizers: Any, **settings: Any) -> Any:
    settings = {"batch_size": adversaries.BATCH, "shuffle": False, **settings}
    return session(model, optimizers, adversaries.data(), **settings)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("calls_bare_model", [False, True])
def test_they_train_as_in_a_plain_loop(calls_bare_model: bool) -> None:
    model, optimizers = adversaries.made()
    with _session(model, optimizers) as job:
        called = model if calls_bare_model else job.model
        for number, (examples, noise) in enumerate(job.batches(epochs=EPOCHS)):
            fakes = called("generator", noise)
            critic_loss = loss_of_discriminator(called, examples, fakes)
            critic = job.step(critic_loss, optimizer=optimizers[0])
            assert (critic.number, critic.is_last, critic.committed) == (number, False, False)
            assert float(critic.loss) == float(critic_loss.detach())
            assert critic.learning_rate == 0.01
            assert not job.every(steps=1)
            step = job.step(loss_of_generator(called, fakes), optimizer=optimizers[1])
            assert (step.number, step.is_last, step.committed) == (number + 1, True, True)
            assert step.learning_rate == 0.02
            assert job.every(steps=1)
        assert job.progress_examples == EPOCHS * adversaries.EXAMPLES
    assert adversaries.seen(model, optimizers) == pytest.approx(_plain(), rel=1e-12)


@pytest.mark.usefixtures("group")
def test_networks_may_be_frozen_in_turns() -> None:
    model, optimizers = adversaries.made()
    with _session(model, optimizers) as job:
        for examples, noise in job.batches(epochs=EPOCHS):
            with torch.no_grad():
                fakes = job.model("generator", noise)
            loss = loss_of_discriminator(job.model, examples, fakes)
            job.step(loss, optimizer=optimizers[0])
            model.discriminator.requires_grad_(False)
            loss = loss_of_generator(job.model, job.model("generator", noise))
            job.step(loss, optimizer=optimizers[1])
            model.discriminator.requires_grad_(True)
    assert adversaries.seen(model, optimizers) == pytest.approx(_plain(), rel=1e-12)


@pytest.mark.usefixtures("group")
def test_one_may_step_several_times_by_a_batch() -> None:
    model, optimizers = adversaries.made()
    with _session(model, optimizers) as job:
        for examples, noise in job.batches(epochs=EPOCHS):
            for _ in range(3):
                fakes = job.model("generator", noise)
                loss = loss_of_discriminator(job.model, examples, fakes)
                job.step(loss, optimizer=optimizers[0])
            job.step(loss_of_generator(job.model, fakes), optimizer=optimizers[1])
    assert adversaries.seen(model, optimizers) == pytest.approx(_plain(critic_steps=3), rel=1e-12)


@pytest.mark.usefixtures("group")
def test_one_may_step_by_some_batches_only() -> None:
    model, optimizers = adversaries.made()
    with _session(model, optimizers) as job:
        for number, (examples, noise) in enumerate(job.batches(epochs=EPOCHS)):
            is_generators = number % 5 == 0
            fakes = job.model("generator", noise)
            loss = loss_of_discriminator(job.model, examples, fakes)
            step = job.step(loss, optimizer=optimizers[0], last=not is_generators)
            if is_generators:
                step = job.step(loss_of_generator(job.model, fakes), optimizer=optimizers[1])
            assert step.committed and step.number == number + 1
    expected = _plain(generator_every=5)
    assert adversaries.seen(model, optimizers) == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("group")
def test_a_forward_pass_that_no_loss_comes_from_changes_nothing() -> None:
    model, optimizers = adversaries.made()
    with _session(model, optimizers) as job:
        for examples, noise in job.batches(epochs=EPOCHS):
            fakes = job.model("generator", noise)
            loss = loss_of_discriminator(job.model, examples, fakes)
            job.model("generator", noise)
            job.step(loss, optimizer=optimizers[0])
            loss = loss_of_generator(job.model, fakes)
            job.model("discriminator", examples)
            job.step(loss, optimizer=optimizers[1])
    assert adversaries.seen(model, optimizers) == pytest.approx(_plain(), rel=1e-12)


def test_a_phase_that_is_not_finite_moves_nothing_and_the_batch_counts_as_skipped() -> None:
    model, optimizers = adversaries.made()
    job, parts = opened(script(model, optimizers, adversaries.data()))
    for number, (examples, noise) in enumerate(job.batches(epochs=1)):
        before = adversaries.seen(model, optimizers)
        fakes = job.model("generator", noise)
        loss = loss_of_discriminator(job.model, examples, fakes)
        critic = job.step(loss * (torch.nan if number == 2 else 1), optimizer=optimizers[0])
        assert critic.skipped == (number == 2)
        assert (adversaries.seen(model, optimizers) == before) == (number == 2)
        step = job.step(loss_of_generator(job.model, fakes), optimizer=optimizers[1])
        assert step.committed and not step.skipped
    assert parts.state.counters.skipped_steps == 1
    assert parts.state.counters.step == 6


def test_weights_are_those_of_each_phase() -> None:
    """A loss over tokens or pairs is divided by what it is a mean over, in each phase."""
    seen = []
    for weights in ((None, None), (3, 640.0)):
        model, optimizers = adversaries.made()
        with _session(model, optimizers) as job:
            for examples, noise in job.batches(epochs=EPOCHS):
                fakes = job.model("generator", noise)
                loss = loss_of_discriminator(job.model, examples, fakes)
                job.step(loss, weights[0], optimizer=optimizers[0])
                loss = loss_of_generator(job.model, fakes)
                job.step(loss, weights[1], optimizer=optimizers[1])
        seen.append(adversaries.seen(model, optimizers))
    assert seen[0] == pytest.approx(seen[1], rel=1e-9)


@pytest.mark.parametrize("arguments", [{}, {"last": True}, {"optimizer": True}])
def test_a_step_of_all_by_one_loss_is_no_phase(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    model, optimizers = adversaries.made()
    if "optimizer" in arguments:
        optimizers = [torch.optim.Adam(model.parameters())]
        arguments = {"optimizer": optimizers[0]}
    with _session(model, optimizers) as job:
        for _, noise in job.batches(epochs=2):
            job.step(loss_of_generator(job.model, job.model("generator", noise)), **arguments)
    assert all(optimizer.state for optimizer in optimizers)


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("logical_ranks splits a batch .*: leave it out", {"logical_ranks": 1}),
        ("a GradScaler changes its factor once .* bfloat16", {"scaler": GradScaler("cpu")}),
        ("static_graph=True requires .*: leave it out", {"static_graph": True}),
    ],
)
def test_sessions_that_have_one_step_a_batch_refuse_phases(
    reason: str, settings: dict[str, Any]
) -> None:
    _refused(rf"optimizer=...\): {reason}", **settings)


def test_batches_that_may_grow_or_are_given_out_in_parts_refuse_phases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    _refused(r"the batch may grow, .*: leave batch.max out of the job file")
    allow(monkeypatch, BatchSpec(16, 16, 4))
    _refused("given out in 4 parts, .*: lower batch_size, .* or train on more devices")


def _refused(reason: str, **settings: Any) -> None:
    model, optimizers = adversaries.made()
    with pytest.raises(ValueError, match=reason), _session(model, optimizers, **settings) as job:
        for examples, noise in job.batches(epochs=1):
            fakes = job.model("generator", noise)
            loss = loss_of_discriminator(job.model, examples, fakes)
            job.step(loss, optimizer=optimizers[0])


def test_misuses_are_refused_with_the_way_out() -> None:
    model, optimizers = adversaries.made()
    with _session(model, optimizers) as job:
        batches = job.batches(epochs=1)
        examples, noise = next(batches)
        fakes = job.model("generator", noise)
        loss = loss_of_discriminator(job.model, examples, fakes)
        with pytest.raises(ValueError, match=r"is none of this session's: give session a list"):
            job.step(loss, optimizer=adversaries.made()[1][0])
        with pytest.raises(TypeError, match="the loss is of type float"):
            job.step(1.0, optimizer=optimizers[0])
        job.step(loss, optimizer=optimizers[0])
        with pytest.raises(RuntimeError, match=r"some optimizers only: .* with last=True"):
            next(batches)


def test_memory_that_runs_out_ends_the_process_and_lowers_the_limit() -> None:
    """The batch can't be taken again in smaller parts, each of which would be a step."""
    model, optimizers = adversaries.made()
    model.register_forward_pre_hook(_short_of_memory)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    with pytest.raises(torch.OutOfMemoryError), _session(model, optimizers) as job:
        for examples, noise in job.batches(epochs=1):
            fakes = job.model("generator", noise)
            loss = loss_of_discriminator(job.model, examples, fakes)
            job.step(loss, optimizer=optimizers[0])
    assert job._parts.replica.limits.own.device_maximum == adversaries.BATCH // 2
    dist.destroy_process_group()


def _short_of_memory(model: nn.Module, inputs: tuple[str, Tensor]) -> None:
    if len(inputs[1]) > 8:
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_what_moved_before_is_undone_with_the_states() -> None:
    model, optimizers = adversaries.made()
    movers = [ScaledOptimizer(optimizer, unchanged) for optimizer in optimizers]
    inputs = LearningRateInputs(1.0, 1.0, 0.0)
    undo = Undo()

    def move() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        for mover in movers:
            mover.move(inputs)

    for moves in range(2):
        before = adversaries.seen(model, optimizers)
        undo.keep(movers)
        move()
        undo.keep(movers)
        move()
        assert adversaries.seen(model, optimizers) != before
        undo.restore()
        assert adversaries.seen(model, optimizers) == before
        assert [len(optimizer.state) for optimizer in optimizers] == [4 * (moves > 0)] * 2
        move()
        undo.restore()
        assert adversaries.seen(model, optimizers) != before, "nothing is kept any more"


@pytest.fixture(params=list(Engine))
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster_of(cast(Engine, request.param), tmp_path))
    yield fleet
    fleet.stop()


def _in_one_process(steps: int) -> list[list[float]]:
    """Return what is seen after each of so many batches, and the discriminator's loss."""
    model, optimizers = adversaries.made()
    after = []
    with _session(model, optimizers, shuffle=True) as job:
        for examples, noise in job.batches(epochs=steps):
            fakes = job.model("generator", noise)
            loss = loss_of_discriminator(job.model, examples, fakes)
            job.step(loss, optimizer=optimizers[0])
            job.step(loss_of_generator(job.model, fakes), optimizer=optimizers[1])
            after.append([*adversaries.seen(model, optimizers), float(loss.detach())])
            if len(after) == steps:
                break
    return after


def test_a_kill_between_phases_costs_one_batch_and_moves_nothing_twice(fleet: Fleet) -> None:
    settings = {"EPOCHS": "100000", "STEP_SECONDS": "0.02"}
    first = fleet.start("adversaries.py", **settings)
    wait_until(lambda: first.step > 3, description="the first replica")
    survivor = fleet.start("adversaries.py", **settings)
    wait_until(lambda: survivor.step > 0, description="the second replica")
    killed = fleet.start("adversaries.py", **settings, KILLED_IN="20", ranks=2, BARE="1")
    assert killed.wait(120) != 0
    survivors = (first, survivor)
    at = first.step
    wait_until(lambda: min(replica.step for replica in survivors) > at + 10, description="steps")
    for replica in survivors:
        wait_until(lambda own=replica: own.steps()[-1]["members"] == 2, description="two members")
    for replica in survivors:
        replica.kill()
    lines = [line for replica in fleet.replicas for line in replica.steps()]
    assert {line["members"] for line in lines if line["committed"]} >= {1, 2, 3}
    expected = _in_one_process(max(line["step"] for line in lines))
    for line in lines:
        *seen, loss = expected[line["step"] - 1]
        assert line["seen"] == pytest.approx(seen, rel=1e-9), line
        assert line["loss"] == pytest.approx(loss, rel=1e-9) or not line["committed"], line
    for replica in survivors:
        committed = [line["step"] for line in replica.steps() if line["committed"]]
        assert committed == sorted({*committed}), "a batch counts once"
    lost = [sum(not line["committed"] for line in replica.steps()) for replica in survivors]
    assert min(lost) <= 2, "a late survivor may lose one more when it is let in again"
