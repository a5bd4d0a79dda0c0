"""Phases of a batch: steps of one optimizer after another, by losses of the same batch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autoscaler.training.steps.scaled_optimizer import ScaledOptimizer


@dataclass(frozen=True, slots=True)
class Phase:
    """Step of some optimizers.

    `places` are their indices in the session's list. `ends_batch`: whether the batch has no
    further phase.
    """

    places: tuple[int, ...]
    ends_batch: bool


class Phases:
    """Phases of the present batch.

    `are_lost`: whether a phase was not committed, so that the batch is taken again.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers
        self._stepped: set[int] = set()
        self.are_lost = False

    def begin(self) -> None:
        """Start the phases of the next batch."""
        self._stepped.clear()
        self.are_lost = False

    @property
    def has_begun(self) -> bool:
        """Whether the batch has had a phase."""
        return bool(self._stepped)

    def chosen(self, optimizer: torch.optim.Optimizer | None, last: bool | None) -> Phase | None:
        """Return the phase that `job.step` requests; None if all optimizers step by one loss.

        By default the batch ends once each optimizer has made a step by it.

        Raises:
            ValueError: the optimizer is not the session's.
        """
        indices = tuple(
            index
            for index, session_optimizer in enumerate(self._optimizers)
            if optimizer is None or session_optimizer is optimizer
        )
        if not indices:
            raise ValueError(
                "job.step(loss, optimizer=...): the optimizer is none of this session's: give "
                "session a list of all optimizers"
            )
        is_all = len(indices) == len(self._optimizers) and not self._stepped
        if is_all and last is not False:
            return None
        is_whole = len(self._stepped | {*indices}) == len(self._optimizers)
        return Phase(indices, is_whole if last is None else last)

    def end(self, phase: Phase, committed: bool) -> None:
        """Record a phase, and whether it was committed."""
        self._stepped |= {*phase.places}
        self.are_lost = not committed


class Undo:
    """Snapshots of parameters and optimizer states, to undo the phases of a batch."""

    def __init__(self) -> None:
        self._snapshots: dict[int, _Snapshot] = {}

    def keep(self, movers: Iterable[ScaledOptimizer]) -> None:
        """Copy the optimizers' parameters and states, unless this batch has a copy of them."""
        for mover in movers:
            if id(mover) not in self._snapshots:
                self._snapshots[id(mover)] = _Snapshot.of(mover)

    def restore(self) -> None:
        """Restore all copies made since `forget`."""
        for snapshot in self._snapshots.values():
            snapshot.restore()
        self.forget()

    def forget(self) -> None:
        """Discard the copies."""
        self._snapshots.clear()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    mover: ScaledOptimizer
    parameters: list[Tensor]
    state: dict[str, Any]

    @classmethod
    def of(cls, mover: ScaledOptimizer) -> _Snapshot:
        parameters = [parameter.detach().clone() for parameter in mover.parameters]
        return cls(mover, parameters, copy.deepcopy(mover.optimizer.state_dict()))

    @torch.no_grad()
    def restore(self) -> None:
        torch._foreach_copy_([*self.mover.parameters], self.parameters)
        self.mover.optimizer.load_state_dict(self.state)
