"""Steps of a model that is sharded over the ranks of one replica, each in its own process."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor import Shard as ShardPlacement
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import SHARD_VARIABLE
from autoscaler.training import replica_mesh
from autoscaler.training.arguments import Script
from autoscaler.training.collectives import sharded_reducer
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.sharded_reducer import ShardedReducer
from autoscaler.training.collectives.sharding import sharding_of
from autoscaler.training.collectives.world import PendingSum
from autoscaler.training.gradients.noise import GradientSquares
from autoscaler.training.gradients.preconditioner import WARM_UP_STEPS, Preconditioner
from autoscaler.training.opening import Parts
from tests.training.alone import allow, opened, script
from tests.training.ranks import on_ranks

BATCH = 8
ADAPTIVE = BatchSpec(BATCH, 64, 64, adaptive=True)


def _network() -> nn.Sequential:
    """Return layers whose rows are no multiple of the ranks, one of them with a frozen bias."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    network[2].bias.requires_grad_(False)
    return network


def _examples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(64, 5, generator=generator, dtype=torch.float64))


def _shard(network: nn.Sequential, copies: int = 1, **options: Any) -> nn.Sequential:
    mesh = replica_mesh(copies)
    fully_shard(network[0], mesh=mesh, **options)
    fully_shard(network, mesh=mesh, **options)
    return network


def _loss(outputs: Tensor) -> Tensor:
    return outputs.square().mean()


def _begun(its_script: Script) -> Parts:
    """Return the parts of a session whose first round has begun."""
    job, parts = opened(its_script)
    job._rounds.open()
    return parts


def _whole(network: nn.Module) -> Tensor:
    """Return all parameters of a sharded network, in one dimension."""
    parts = [
        parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        for parameter in network.parameters()
    ]
    return torch.cat([part.detach().flatten() for part in parts])


def _squares_of_steps(
    network: nn.Sequential, optimizer: torch.optim.Optimizer, micro_steps: int, steps: int
) -> list[GradientSquares]:
    """Return the squares of steps that are sampled once Adam's averages count."""
    examples, rank, ranks = _examples(), dist.get_rank(), dist.get_world_size()
    parts = _begun(script(network, optimizer, examples, batch_size=BATCH))
    stepper, found = parts.stepper, []
    size = BATCH // ranks // micro_steps
    for step in range(steps):
        stepper.begin(samples=step >= WARM_UP_STEPS, alone=False)
        own = examples.tensors[0][(BATCH * step + rank * BATCH // ranks) % 64 :]
        for number in range(micro_steps):
            is_last = number == micro_steps - 1
            parts.reducer.synchronises = is_last
            inputs = own[number * size : (number + 1) * size]
            loss = _loss(parts.reducer.model(inputs))
            stepper.backward(loss, size / BATCH, is_last)
        parts.state.counters.step = step
        stepper.end(BATCH, (0, 0))
        found.append(stepper.take_squares())
    parts.reducer.close()
    return found


def _sharded_beside_plain(
    ranks: InstanceRanks, kind: str, copies: int, micro_steps: int
) -> list[tuple[GradientSquares, GradientSquares]]:
    make: Any = getattr(torch.optim, kind)
    with pytest.MonkeyPatch.context() as monkeypatch:
        allow(monkeypatch, ADAPTIVE)
        network = _shard(_network(), copies)
        sharded = _squares_of_steps(network, make(network.parameters(), lr=1e-3), micro_steps, 16)
        network = _network()
        plain = _squares_of_steps(network, make(network.parameters(), lr=1e-3), 1, 16)
    return list(zip(sharded, plain, strict=True))


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize(
    ("ranks", "copies", "micro_steps"), [(2, 1, 1), (2, 1, 2), (4, 2, 1)], ids=str
)
def test_squares_are_those_of_a_plain_model(
    ranks: int, copies: int, micro_steps: int, kind: str
) -> None:
    """Squares of plain models are unbiased.

    With two micro-steps the small gradients have half as many examples.
    """
    pairs = on_ranks(ranks, _sharded_beside_plain, kind, copies, micro_steps)[0]
    assert sum(sharded.samples for sharded, _ in pairs) == 16 - WARM_UP_STEPS
    for sharded, plain in pairs:
        assert (sharded.samples, sharded.smalls) == (plain.samples, plain.smalls)
        assert sharded.big_square == pytest.approx(plain.big_square, rel=0.02)
        assert sharded.small_inverse == pytest.approx(plain.small_inverse * micro_steps)
        if micro_steps == 1:
            assert sharded.small_square == pytest.approx(plain.small_square, rel=0.02)


def _estimates_beside_truth(ranks: InstanceRanks, kind: str) -> dict[str, float]:
    """Return |G|^2 and tr(Sigma) as estimated at fixed weights, and as they are."""
    network = _shard(_network())
    optimizer = getattr(torch.optim, kind)(network.parameters(), lr=1e-12)
    generator = torch.Generator().manual_seed(2)
    examples = torch.randn(256, 5, generator=generator, dtype=torch.float64)
    data = TensorDataset(examples)
    with pytest.MonkeyPatch.context() as monkeypatch:
        allow(monkeypatch, ADAPTIVE)
        parts = _begun(script(network, optimizer, data, batch_size=BATCH))
    sums = [0.0] * 6
    for step in range(250):
        is_sampled = step >= 50
        parts.stepper.begin(samples=is_sampled, alone=False)
        chosen = torch.randint(256, (BATCH,), generator=generator)
        own = chosen[ranks.rank * BATCH // ranks.ranks :][: BATCH // ranks.ranks]
        parts.reducer.synchronises = True
        loss = _loss(parts.reducer.model(examples[own]))
        parts.stepper.backward(loss, 1 / ranks.ranks, is_last=True)
        parts.state.counters.step = step
        parts.stepper.end(BATCH, (0, 0))
        squares = parts.stepper.take_squares()
        values = [
            *(squares.samples, squares.smalls, squares.small_square),
            *(squares.small_inverse, squares.big_square, squares.big_inverse),
        ]
        sums = [total + value for total, value in zip(sums, values, strict=True)]
    estimate = GradientSquares(*sums).estimate()
    assert estimate is not None
    factors = Preconditioner(optimizer)
    scales = [
        torch.cat(ranks.values(factors.factors(parameter, _sum_square(ranks, factors, parameter))))
        if factors.is_adaptive
        else torch.ones(parameter.shape)
        for parameter in network.parameters()
        if parameter.requires_grad
    ]
    plain = _network()
    gradients = torch.stack([_gradient(plain, example, scales) for example in examples])
    mean = gradients.mean(dim=0)
    parts.reducer.close()
    return {
        "square": estimate[0],
        "trace": estimate[1],
        "true_square": float(mean.square().sum()),
        "true_trace": float((gradients - mean).square().sum(dim=1).mean()),
    }


def _sum_square(ranks: InstanceRanks, factors: Preconditioner, parameter: Tensor) -> Tensor:
    return torch.tensor(ranks.sum([float(factors.usual_square(parameter))])[0])


def _gradient(network: nn.Sequential, example: Tensor, scales: list[Tensor]) -> Tensor:
    """Return the preconditioned gradient of one example's loss."""
    network.zero_grad()
    _loss(network(example)).backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in network.parameters() if parameter.requires_grad]
    pairs = zip(gradients, scales, strict=True)
    return torch.cat([(gradient * scale).flatten() for gradient, scale in pairs])


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_estimates_of_the_noise_scale_meet_the_truth(kind: str) -> None:
    estimates = on_ranks(2, _estimates_beside_truth, kind)[0]
    assert estimates["square"] == pytest.approx(estimates["true_square"], rel=0.1)
    assert estimates["trace"] == pytest.approx(estimates["true_trace"], rel=0.1)


def _train(network: nn.Sequential, steps: int = 6, **options: Any) -> tuple[nn.Sequential, list]:
    """Train in a session; return the network and the facts of its steps."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    kind = next(network.parameters()).dtype
    data = TensorDataset(_examples().tensors[0].to(kind))
    job, parts = opened(script(network, optimizer, data, batch_size=BATCH, **options))
    facts = []
    for (inputs,) in job.batches(epochs=1):
        facts.append(job.step(_loss(job.model(inputs).double())))
        if len(facts) == steps:
            break
    parts.reducer.close()
    return network, facts


def _variants(ranks: InstanceRanks) -> dict[str, Tensor]:
    """Return the weights that trainings of the same network in several ways end with."""
    checkpointed, compiled = _network(), _shard(_network())
    checkpointed[0] = checkpoint_wrapper(checkpointed[0])
    compiled[0].compile(backend="aot_eager")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    scaler = GradScaler("cpu", init_scale=2.0**9)
    trained = {
        "plain": _train(_network()),
        "sharded": _train(_shard(_network())),
        "scaled": _train(_shard(_network()), scaler=scaler),
        "clipped": _train(_shard(_network()), max_grad_norm=1e-3),
        "checkpointed": _train(_shard(checkpointed)),
        "compiled": _train(compiled),
        "mixed": _train(_shard(_network().float(), mp_policy=policy)),
        "plain and clipped": _train(_network(), max_grad_norm=1e-3),
    }
    return {name: _whole(network).double() for name, (network, _) in trained.items()}


def test_ways_to_train_end_with_the_weights_of_a_plain_model() -> None:
    """Scaled losses, clipping, activation checkpoints, compiled parts, 16 bits in passes."""
    weights = on_ranks(2, _variants)[0]
    for name in ("sharded", "scaled", "checkpointed", "compiled"):
        assert torch.allclose(weights[name], weights["plain"], rtol=1e-9, atol=1e-12), name
    assert torch.allclose(weights["clipped"], weights["plain and clipped"], rtol=1e-6)
    assert not torch.allclose(weights["clipped"], weights["plain"], rtol=1e-6)
    assert torch.allclose(weights["mixed"], weights["plain"], atol=0.02)
    assert not torch.equal(weights["mixed"], weights["plain"])


def _step_with(
    ranks: InstanceRanks, loss_of_last: float, weight_of_last: float
) -> tuple[bool, float]:
    """Make a step in which the last rank multiplies its loss; return if it moved, and the norm."""
    network = _shard(_network())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    parts = _begun(script(network, optimizer, _examples(), max_grad_norm=10.0))
    is_last = ranks.rank == ranks.ranks - 1
    parts.stepper.begin(samples=False, alone=False)
    parts.reducer.synchronises = True
    loss = _loss(parts.reducer.model(_examples().tensors[0][:4]))
    factor, weight = (loss_of_last, weight_of_last) if is_last else (1.0, 1.0)
    parts.stepper.backward(loss * factor, weight, is_last=True)
    outcome = parts.stepper.end(BATCH, (0, 0))
    parts.reducer.close()
    assert outcome.gradient_norm is not None
    return outcome.committed and not outcome.skipped, float(outcome.gradient_norm)


def test_all_ranks_skip_a_step_that_one_of_them_spoilt(found: dict[str, Any]) -> None:
    assert [moved for moved, _ in found["spoilt"]] == [False, False]


def test_a_mean_over_no_examples_counts_for_nothing(found: dict[str, Any]) -> None:
    first, last = found["with nothing"]
    assert first == last == found["with no weight"][0]
    assert first[0], "the step moves the model"


def _sum_between_replicas(ranks: InstanceRanks, wire_type: torch.dtype | None) -> dict[str, Any]:
    """Return gradients before and after a sum with a replica that has the same ones."""
    network = _shard(_network())
    sharding = sharding_of(network)
    assert sharding is not None
    lengths = []

    def twice(tensor: Tensor) -> PendingSum:
        lengths.append(tensor.numel())
        tensor.mul_(2.0)
        return PendingSum()

    preconditioner = Preconditioner(torch.optim.SGD(network.parameters(), lr=0.1))
    reducer = ShardedReducer(
        sharding, network, SystemClock(), ranks, twice, preconditioner, wire_type
    )
    reducer.take_route((2, 2), 0, has_rails=True)
    for _ in range(2):  # micro-steps
        _loss(network(_examples().tensors[0][:4])).backward()  # type: ignore[no-untyped-call]
    before = [parameter.grad.full_tensor() for parameter in reducer._trained]  # type: ignore
    reducer.end_sums()
    after = [parameter.grad.full_tensor() for parameter in reducer._trained]  # type: ignore
    unused, used = reducer._trained[0], reducer.used()
    unused.grad = None
    reducer.end_sums()
    reducer.take_gradients_of_others([1.0] * len(used))
    reducer.close()
    assert unused.grad is not None
    return {
        "before": before,
        "after": after,
        "lengths": lengths,
        "used": used,
        "of_unused": unused.grad.full_tensor(),  # type: ignore[attr-defined]
        "bytes": reducer.synchronised_bytes,
    }


@pytest.mark.parametrize("wire_type", [None, torch.bfloat16])
def test_parts_are_summed_with_other_replicas_in_buckets(
    found: dict[str, Any], wire_type: torch.dtype | None
) -> None:
    first, last = found["sums"][wire_type]
    for before, after in zip(first["before"], first["after"], strict=True):
        assert torch.allclose(after, 2 * before, rtol=1e-12 if wire_type is None else 0.01)
    assert sum(first["lengths"][:2]) == 4 * 6 + 2 * 7
    assert sum(last["lengths"][:2]) == 3 * 6 + 7
    assert first["used"] == [1.0, 1.0, 1.0]
    assert torch.equal(first["of_unused"], torch.zeros(7, 5)), "no other had a part in it"
    assert first["bytes"] == (7 * 6 + 3 * 7) * (8 if wire_type is None else 2)


def _phases(is_sharded: bool) -> Tensor:
    """Return the weights after batches in which two optimizers step one after the other."""
    network = _network()
    if is_sharded:
        _shard(network)
    halves = [torch.optim.Adam(network[part].parameters(), lr=0.01) for part in (0, 2)]
    job, parts = opened(script(network, halves, _examples(), batch_size=BATCH))
    for count, (inputs,) in enumerate(job.batches(epochs=1)):
        for optimizer in halves:
            job.step(_loss(job.model(inputs)), optimizer=optimizer)
        if count == 4:
            break
    parts.reducer.close()
    return _whole(network)


def test_several_optimizers_step_one_after_the_other(found: dict[str, Any]) -> None:
    sharded, plain = found["phases"]
    assert torch.allclose(sharded, plain, rtol=1e-9)


@pytest.mark.usefixtures("group")
class TestRefusals:
    """Models that are sharded in a way that a session can't train; in a world of one rank."""

    def test_a_parameter_beside_the_shards_is_refused_by_name(self) -> None:
        network = _network()
        fully_shard(network[0], mesh=replica_mesh())
        with pytest.raises(ValueError, match=r"model: 2\.weight is not sharded while others are"):
            sharding_of(network)

    def test_parameters_in_host_memory_are_refused(self) -> None:
        network = _shard(_network(), offload_policy=CPUOffloadPolicy(pin_memory=False))
        with pytest.raises(ValueError, match="leave offload_policy out of fully_shard"):
            sharding_of(network)

    def test_tensor_parallelism_is_refused(self) -> None:
        network = _network()
        weight = distribute_tensor(network[0].weight, replica_mesh(), [ShardPlacement(0)])
        network[0].weight = nn.Parameter(weight)
        with pytest.raises(ValueError, match="DTensor that fully_shard has not made"):
            sharding_of(network)

    def test_an_optimizer_from_before_the_shards_is_refused(self) -> None:
        network = _network()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        with pytest.raises(ValueError, match="create the optimizer after fully_shard"):
            opened(script(_shard(network), optimizer, _examples()))

    def test_a_number_of_copies_that_does_not_divide_the_ranks_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"replica_mesh\(copies=2\): the replica has 1 ranks"):
            replica_mesh(copies=2)

    def test_a_model_that_was_evaluated_before_the_session_is_taken(self) -> None:
        """Its first module keeps whole parameters after a forward pass."""
        network = _shard(_network())
        with torch.no_grad():
            network(_examples().tensors[0])
        assert sharding_of(network) is not None


def _mesh_of_some_ranks() -> str:
    network = _network()
    mesh = replica_mesh(copies=2)["shard"]
    for part in (network[0], network):
        fully_shard(part, mesh=mesh)
    with pytest.raises(ValueError, match="over all 2 ranks of the replica") as refusal:
        sharding_of(network)
    return str(refusal.value)


def test_a_mesh_over_some_of_the_ranks_is_refused(found: dict[str, Any]) -> None:
    assert "on a mesh of 1 ranks" in found["mesh refusal"]


def _meshes_by_job_file() -> list[tuple[int, ...]]:
    """Return the shapes of two ranks' mesh for jobs without a shard, and with one of 1 and 2."""
    shapes = [tuple(replica_mesh().shape)]
    for shard in (1, 2):
        os.environ[SHARD_VARIABLE] = str(shard)
        shapes.append(tuple(replica_mesh().shape))
    os.environ[SHARD_VARIABLE] = "3"
    with pytest.raises(ValueError, match=r"2 ranks, no multiple of parallelism\.shard 3"):
        replica_mesh()
    del os.environ[SHARD_VARIABLE]
    return shapes


def test_the_job_file_says_how_many_copies_a_replica_holds(found: dict[str, Any]) -> None:
    assert found["meshes"] == [(2,), (2, 1), (2,)]


def _results_of_steps(ranks: InstanceRanks) -> dict[str, Any]:
    """Return what the everyday tests check, computed on ranks that take seconds to start."""
    sharded_reducer._BUCKET_BYTES = 64  # type: ignore[misc]
    of_all = ranks.values
    return {
        "spoilt": of_all(_step_with(ranks, float("nan"), 1.0)),
        "with nothing": of_all(_step_with(ranks, float("nan"), 0.0)),
        "with no weight": of_all(_step_with(ranks, 1.0, 0.0)),
        "sums": {
            wire_type: of_all(_sum_between_replicas(ranks, wire_type))
            for wire_type in (None, torch.bfloat16)
        },
        "phases": [_phases(is_sharded) for is_sharded in (True, False)],
        "meshes": _meshes_by_job_file(),
        "mesh refusal": _mesh_of_some_ranks(),
    }


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Results of steps on two ranks, by name."""
    return on_ranks(2, _results_of_steps)[0]
