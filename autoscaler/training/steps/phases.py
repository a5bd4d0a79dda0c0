"""Phases of a batch: steps of one optimizer after another, by losses of the same batch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autoscaler.training.steps.mover import Mover


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of some optimizers, which are named by their places in the session's list.

    `ends_batch`: no other phase of the batch follows.
    """

    places: tuple[int, ...]
    ends_batch: bool


class Phases:
    """The phases of the present batch.

    `are_lost`: one of them was not committed, so that the batch is taken again.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers
        self._stepped: set[int] = set()
        self.are_lost = False

    def begin(self) -> None:
        """Expect the phases of the next batch."""
        self._stepped.clear()
        self.are_lost = False

    @property
    def has_begun(self) -> bool:
        """Whether the batch has had a phase that was committed."""
        return bool(self._stepped)

    def chosen(self, optimizer: torch.optim.Optimizer | None, last: bool | None) -> Phase | None:
        """Return the phase that `job.step` asks for; None where all step by one loss of the batch.

        By default the batch ends when each of the optimizers has made a step by it.

        Raises:
            ValueError: the optimizer is not the session's.
        """
        places = tuple(
            place
            for place, known in enumerate(self._optimizers)
            if optimizer is None or known is optimizer
        )
        if not places:
            raise ValueError(
                "job.step(loss, optimizer=...): the optimizer is none of this session's: give "
                "session a list of all optimizers"
            )
        is_all = len(places) == len(self._optimizers) and not self._stepped
        if is_all and last is not False:
            return None
        is_whole = len(self._stepped | {*places}) == len(self._optimizers)
        return Phase(places, is_whole if last is None else last)

    def end(self, phase: Phase, committed: bool) -> None:
        """Note what has become of a phase."""
        self._stepped |= {*phase.places}
        self.are_lost = not committed


class Undo:
    """What the phases of a batch have moved, as it was before the batch."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def keep(self, movers: Iterable[Mover]) -> None:
        """Copy what optimizers move, and their states, unless the batch has moved them before."""
        for mover in movers:
            if id(mover) not in self._kept:
                self._kept[id(mover)] = _Kept.of(mover)

    def restore(self) -> None:
        """Set back what has moved since `forget`."""
        for kept in self._kept.values():
            kept.restore()
        self.forget()

    def forget(self) -> None:
        """Let go of the copies."""
        self._kept.clear()


@dataclass(frozen=True, slots=True)
class _Kept:
    mover: Mover
    parameters: list[Tensor]
    state: dict[str, Any]

    @classmethod
    def of(cls, mover: Mover) -> _Kept:
        parameters = [parameter.detach().clone() for parameter in mover.parameters]
        return cls(mover, parameters, copy.deepcopy(mover.optimizer.state_dict()))

    @torch.no_grad()
    def restore(self) -> None:
        torch._foreach_copy_([*self.mover.parameters], self.parameters)
        self.mover.optimizer.load_state_dict(self.state)
