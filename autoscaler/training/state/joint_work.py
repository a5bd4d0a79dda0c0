"""Work of several ranks on one checkpoint: it succeeds on all ranks or fails on all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from autoscaler.domain.errors import CheckpointError
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.state.checkpoint_files import root_cause

_Result = TypeVar("_Result")


class WorkError(Exception):
    """Failure of a disk, a storage or a rank; the message is the reason, on one line."""


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[_Result]):
    """Result of one rank's work, or the reason of its failure.

    `is_final`: whether the failure is a `CheckpointError`, whose text is for the user.
    """

    results: tuple[_Result, ...] = ()
    reason: str = ""
    is_final: bool = False


class JointWork:
    """Work of `ranks`, which must all call the same methods in the same order.

    Every method raises on all ranks alike: `CheckpointError` if a rank did, and `WorkError` if a
    rank raised another error, as of a disk or a storage, or is lost.
    """

    def __init__(self, ranks: InstanceRanks) -> None:
        self.ranks = ranks

    def on_all(self, work: Callable[[], _Result]) -> list[_Result]:
        """Do `work` on every rank; return the results by rank."""
        outcomes = self._gathered(_outcome_of(work))
        failures = [(rank, outcome) for rank, outcome in enumerate(outcomes) if outcome.reason]
        if failures:
            self._raise(*failures[0])
        return [outcome.results[0] for outcome in outcomes]

    def on_leader(self, work: Callable[[], _Result]) -> _Result:
        """Do `work` on the leader; return its result on every rank."""
        outcome = _outcome_of(work) if self.ranks.is_leader else None
        try:
            shared: _Outcome[_Result] = self.ranks.value_from_leader(outcome)
        except RuntimeError as error:
            raise WorkError(_lost_rank(error)) from error
        if shared.reason:
            self._raise(0, shared)
        return shared.results[0]

    def _gathered(self, outcome: _Outcome[_Result]) -> list[_Outcome[_Result]]:
        try:
            return self.ranks.values(outcome)
        except RuntimeError as error:
            raise WorkError(_lost_rank(error)) from error

    def _raise(self, rank: int, outcome: _Outcome[_Result]) -> None:
        if outcome.is_final:
            raise CheckpointError(outcome.reason)
        is_alone = self.ranks.ranks == 1
        raise WorkError(outcome.reason if is_alone else f"rank {rank}: {outcome.reason}")


def _outcome_of(work: Callable[[], _Result]) -> _Outcome[_Result]:
    try:
        return _Outcome((work(),))
    except CheckpointError as error:
        return _Outcome(reason=str(error), is_final=True)
    except Exception as error:  # the other ranks wait for an outcome, whatever went wrong
        return _Outcome(reason=root_cause(error))


def _lost_rank(error: RuntimeError) -> str:
    return f"a rank is lost ({root_cause(error)})"
