"""State of a replica that joining replicas receive and checkpoints hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.utils._pytree import tree_leaves

from autoscaler.domain.errors import DivergedError
from autoscaler.training.collectives.buffers import written_buffers
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.sharding import mesh_of
from autoscaler.training.gradients.finite import non_finite_names
from autoscaler.training.gradients.noise import NoiseTracker
from autoscaler.training.gradients.parts import local_part
from autoscaler.training.gradients.sampling import SamplingBudget
from autoscaler.training.state.batch_log import BATCH_LOG_FILE, BatchDecision, BatchLog
from autoscaler.training.state.buffers import SharedBuffers
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.checkpoint_part import (
    files_read,
    read_metadata,
    require_fit,
    saved_tensors,
)
from autoscaler.training.state.fingerprint import require_equal_shapes
from autoscaler.training.state.own_state import (
    ScriptState,
    shards_to_read,
    with_shards,
    without_shards,
)
from autoscaler.training.state.reception import Description, StateBuffer, describe, tensors_of
from autoscaler.training.state.script_rates import (
    rate_ratios,
    scale_groups,
    scaled_schedule,
    script_rates,
)
from autoscaler.training.state.several import each_of, load_states, states_of

_SHARDS: Final = "own"
"""Name in checkpoints of the sharded tensors of the script's own state."""


class Scheduler(Protocol):
    """Interface of a learning-rate scheduler."""

    def step(self) -> None:
        """Advance the schedule by one step of the initial batch size."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another scheduler."""
        ...


@dataclass(slots=True)
class Counters:
    """Training progress: committed steps, the sampler's position, and statistics of gradients.

    Attributes:
        step: committed steps.
        pass_index: the sampler's pass over the dataset, from 0.
        position: the sampler's position in that pass.
        progress_examples: useful examples so far.
        batch_total: batch size in force, over all ranks.
        scheduler_steps: steps of the learning-rate schedule.
        gradient_square: last clear |G|^2 of `domain.NoiseScale`; 0 before.
        gradient_variance: last clear gradient variance of `domain.NoiseScale`; 0 before.
        skipped_steps: committed steps that moved no weight, as their gradient was not finite.
        skipped_in_a_row: skipped steps since the last step that moved the model.
        first_keyed_pass: passes before this one have the example order of earlier versions; see
            `orders.Shuffled`.
        weight_per_example: loss weight per example, of the last step with weights from the script.
        noise: tracker of the gradient noise scale.
        sampling: budget of steps that take gradient squares.
    """

    step: int = 0
    pass_index: int = 0
    position: int = 0
    progress_examples: float = 0.0
    batch_total: int = 0
    scheduler_steps: int = 0
    gradient_square: float = 0.0
    gradient_variance: float = 0.0
    skipped_steps: int = 0
    skipped_in_a_row: int = 0
    first_keyed_pass: int = 0
    weight_per_example: float = 1.0
    noise: NoiseTracker = field(default_factory=NoiseTracker)
    sampling: SamplingBudget = field(default_factory=SamplingBudget)


class TrainingState:
    """Model, optimizers, schedules and counters of one replica, as a tree of plain values."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        scheduler: Scheduler | Sequence[Scheduler] | None,
        counters: Counters,
        scaler: GradScaler | None = None,
        own: ScriptState | None = None,
    ) -> None:
        self._own = own or ScriptState(None)
        self._model = model
        self._mesh = mesh_of(model)
        self._optimizers: tuple[torch.optim.Optimizer, ...] = each_of(optimizer)
        self._schedulers: tuple[Scheduler, ...] = each_of(scheduler)
        self._scaler = scaler
        self._script_rates = [
            rate for torch_optimizer in self._optimizers for rate in script_rates(torch_optimizer)
        ]
        self._carried_cache: tuple[int, int] | None = None
        self.counters = counters
        self.batches = BatchLog()
        self.replica = "alone"
        self.buffers = SharedBuffers(model)
        # A buffer may hold infinity on purpose, as an attention mask does.
        self._initially_non_finite = non_finite_names(_weights(model))

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a tree; its tensors are the live ones, not copies."""
        return {
            "model": self._model.state_dict(),
            "optimizer": states_of(self._optimizers),
            "replica": self.replica,
            **self._plain_values(),
        }

    def _plain_values(self) -> dict[str, Any]:
        return {
            "scheduler": states_of(self._schedulers),
            "scaler": self._scaler.state_dict() if self._scaler else None,
            "counters": asdict(self.counters),
            "own": self._own.state_dict(),
            "script_rates": self._script_rates,
            "batches": self.batches.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load `state`; the optimizers adopt its tensors without a copy.

        Raises:
            MismatchError: it is the state of another model.
        """
        self._require_shapes_of(state)
        if not _is_same_memory(self._model.state_dict(), state["model"]):
            self._model.load_state_dict(state["model"])
        load_states(self._optimizers, state["optimizer"])
        self._load_rest(state)

    def reception(self, description: Description, in_place: bool) -> StateBuffer:
        """Return memory to receive another replica's state into: see `StateBuffer`.

        Once it is complete, pass its tree to `load_state_dict`.

        Raises:
            MismatchError: it is the state of another model.
        """
        self._require_shapes_of(description.tree)
        device = next(self._model.parameters()).device
        return StateBuffer(self.state_dict(), description, device, in_place, self._mesh)

    def _require_shapes_of(self, state: Mapping[str, Any]) -> None:
        replica = f"replica {state.get('replica', '?')}"
        require_equal_shapes(
            _local_parts(self._model.state_dict()), _local_parts(state["model"]), replica
        )

    @property
    def shards(self) -> int | None:
        """Number of ranks that hold one copy of the model; None for a plain model."""
        return None if self._mesh is None else self._mesh.size(self._mesh.ndim - 1)

    def _load_rest(self, state: Mapping[str, Any]) -> None:
        schedules = list(each_of(state["scheduler"]))
        ratios = rate_ratios(state.get("script_rates", self._script_rates), self._script_rates)
        if ratios is not None:
            scale_groups(self._groups, ratios)
            ratios_by_schedule = [
                self._ratios_of(scheduler, ratios) for scheduler in self._schedulers
            ]
            schedules = [
                scaled_schedule(schedule, schedule_ratios)
                for schedule, schedule_ratios in zip(schedules, ratios_by_schedule, strict=False)
            ]
        load_states(self._schedulers, schedules)
        if self._scaler is not None and state.get("scaler"):  # a disabled scaler has no state
            self._scaler.load_state_dict(state["scaler"])
        self._own.load_state_dict(state.get("own", {}))
        self.batches = BatchLog(BatchDecision(**values) for values in state.get("batches", []))
        counters = dict(state["counters"])
        noise = NoiseTracker(**counters.pop("noise"))
        # States of earlier versions lack this; a pass in progress keeps its order of examples.
        first_keyed_pass = counters["pass_index"] + (counters["position"] > 0)
        counters.setdefault("first_keyed_pass", first_keyed_pass)
        sampling = SamplingBudget(**counters.pop("sampling", {}))
        self.counters = Counters(**counters, noise=noise, sampling=sampling)

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _ratios_of(self, scheduler: Scheduler, ratios: Sequence[float]) -> list[float]:
        """Return the ratios of the parameter groups that a scheduler drives."""
        driven = getattr(scheduler, "optimizer", None)
        owners = [optimizer for optimizer in self._optimizers for _ in optimizer.param_groups]
        pairs = zip(owners, ratios, strict=True)
        return [ratio for owner, ratio in pairs if driven is None or owner is driven]

    @property
    def carried_bytes(self) -> int:
        """Bytes of all tensors of the state, which joiners receive and checkpoints hold."""
        entries = sum(len(optimizer.state) for optimizer in self._optimizers)
        if self._carried_cache is None or self._carried_cache[0] != entries:
            tensors = (leaf for leaf in tree_leaves(self.state_dict()) if isinstance(leaf, Tensor))
            sizes = (tensor.numel() * tensor.element_size() for tensor in tensors)
            self._carried_cache = entries, sum(sizes)
        return self._carried_cache[1]

    def save(self, checkpoints: Checkpoints, at_once: bool) -> None:
        """Write a checkpoint: in the background, or `at_once`.

        All ranks call this together if the model is sharded over them, else the leader.

        Raises:
            DivergedError: a weight is not finite. Its checkpoint would displace a good one.
        """
        self._require_finite(checkpoints)
        unused = [optimizer for optimizer in self._optimizers if not optimizer.state]
        model, optimizer = self._tensors()
        groups = iter(optimizer["param_groups"])
        for torch_optimizer in self._optimizers:
            own_groups = list(itertools.islice(groups, len(torch_optimizer.param_groups)))
            if torch_optimizer in unused:
                torch_optimizer.state.clear()
                for name in itertools.chain(*(group["params"] for group in own_groups)):
                    optimizer["state"].pop(name, None)
        rest = self._plain_values()
        rest["own"], shards = without_shards(rest["own"])
        save = checkpoints.save_now if at_once else checkpoints.save
        texts = {BATCH_LOG_FILE: self.batches.text}
        tensors = {"model": model, "optimizer": optimizer, _SHARDS: shards}
        save(self.counters.step, tensors, rest, texts)

    def reserve(self, checkpoints: Checkpoints) -> bool:
        """Prepare memory for the copies that `save` makes, once the optimizers have a state.

        Return whether they have.
        """
        if not all(optimizer.state for optimizer in self._optimizers):
            return False
        model, optimizer = self._tensors()
        checkpoints.reserve({"model": model, "optimizer": optimizer})
        return True

    def _require_finite(self, checkpoints: Checkpoints) -> None:
        local_names = non_finite_names(_weights(self._model))
        names = local_names.union(*checkpoints.gathered(local_names))
        broken = sorted(names - self._initially_non_finite)
        if broken:
            others = f" and {len(broken) - 1} more" if broken[1:] else ""
            raise DivergedError(
                f"{broken[0]}{others} is not finite at step {self.counters.step}, which is not "
                "saved: lower the learning rate or check the data, then resume "
                "from the newest checkpoint, if one was taken before, by "
                "castor resume JOB --file FILE"
            )

    def restore_newest(self, checkpoints: Checkpoints) -> bool:
        """Load the newest whole checkpoint; return whether there is one.

        All ranks of the session call this together.

        Raises:
            CheckpointError: there are checkpoints, but none can be used or fits this model.
        """
        trees: dict[Path, dict[str, Any]] = {}

        def files_to_read(path: Path) -> frozenset[str]:
            trees.clear()  # an earlier candidate was not whole
            trees[path] = self._fitting(path)
            return files_read(path, trees[path])

        path = checkpoints.newest(files_to_read)
        if path is not None:
            self._read(checkpoints, path, trees.get(path) or self._fitting(path))
        return path is not None

    def restore(self, checkpoints: Checkpoints, path: Path) -> None:
        """Load the checkpoint at `path`.

        Raises:
            CheckpointError: the checkpoint does not fit this model. Nothing is changed.
        """
        self._read(checkpoints, path, self._fitting(path))

    def _read(self, checkpoints: Checkpoints, path: Path, tensors: dict[str, Any]) -> None:
        """Load the checkpoint at `path` by a tree of `_fitting`."""
        rest = checkpoints.load(path, tensors)
        set_model_state_dict(self._model, tensors["model"])
        set_optimizer_state_dict(
            self._model,
            self._optimizers,
            tensors["optimizer"],
            options=StateDictOptions(strict=False),
        )
        saved_state = rest.get("own", {})
        rest["own"] = with_shards(saved_state, tensors[_SHARDS], self._own.state_dict())
        self._load_rest(rest)

    def _fitting(self, path: Path) -> dict[str, Any]:
        """Return a tree of tensors to read the checkpoint at `path` into.

        As a side effect, the optimizers' states are replaced by initial ones.

        Raises:
            CheckpointError: the checkpoint does not fit this model.
        """
        metadata = read_metadata(path)
        require_fit(path, metadata, {"model": get_model_state_dict(self._model)})
        for torch_optimizer in self._optimizers:
            torch_optimizer.state.clear()
            torch_optimizer.zero_grad()
        model, optimizer = self._tensors()
        saved_names = frozenset(metadata.state_dict_metadata)
        optimizer["state"] = _saved_entries(optimizer["state"], saved_names)
        shards = shards_to_read(self._own.state_dict(), saved_tensors(metadata, _SHARDS))
        tensors = {"model": model, "optimizer": optimizer, _SHARDS: shards}
        require_fit(path, metadata, tensors)
        return tensors

    def _tensors(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's state and the optimizers' merged state, keyed by parameter names.

        As a side effect, an optimizer without any state or gradient makes a step of length zero,
        which Adam counts.
        """
        model, optimizer = get_state_dict(self._model, self._optimizers)
        return model, cast(dict[str, Any], optimizer)

    def advance(self, useful_examples: float, place: tuple[int, int], initial: int) -> None:
        """Count one committed step of `useful_examples`, after which the sampler is at `place`.

        The schedule is made for steps of the initial batch. It therefore advances by one for every
        `initial` useful examples.
        """
        counters = self.counters
        counters.step += 1
        counters.progress_examples += useful_examples
        counters.pass_index, counters.position = place
        due_steps = int(counters.progress_examples // initial)
        for _ in range(due_steps - counters.scheduler_steps):
            for scheduler in self._schedulers:
                scheduler.step()
        counters.scheduler_steps = due_steps

    def broadcast_in_instance(self, instance: InstanceRanks) -> None:
        """Copy the leader's state into the memory of the instance's other ranks."""
        state = self.state_dict()
        description = instance.value_from_leader(describe(state) if instance.is_leader else None)
        if instance.is_leader:
            for tensor in tensors_of(state):
                instance.broadcast(tensor.contiguous())
            return
        reception = self.reception(description, in_place=True)
        for tensor in reception.tensors:
            instance.broadcast(tensor)
        self.load_state_dict(reception.complete())


def _is_same_memory(current: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether all values of both are the same tensors, so that loading is needless."""
    pairs = [(current[name], value) for name, value in other.items()]
    return all(
        isinstance(value, torch.Tensor)
        and local_part(value).data_ptr() == local_part(present).data_ptr()
        for present, value in pairs
    )


def _local_parts(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: local_part(tensor) for name, tensor in tensors.items()}


def _weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from written_buffers(model)


def _saved_entries(state: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Return the entries of an optimizer's `state` that a checkpoint with these `keys` holds.

    It holds entries of the parameters that had had a gradient when it was written.
    """
    branches = {key[:end] for key in keys for end, character in enumerate(key) if character == "."}
    return {
        name: values for name, values in state.items() if f"optimizer.state.{name}" in branches
    }
