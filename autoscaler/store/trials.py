"""What trials ask the drivers of their studies, and are answered; who drives a study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from autoscaler.domain.errors import Conflict
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, WaitingCall


class Trials(ABC):
    """The calls of the trials of one store. A trial is a job whose spec names a study.

    A process that holds a trial is one incarnation of it. As soon as the next one has begun,
    nothing more is taken from it. A distributed trial is held by one on each instance: those that
    train together are kept apart from one left behind by their quorum.
    """

    @abstractmethod
    def begin(self, job: str, instance: str, started_seconds: float) -> int:
        """The number of the incarnation that this start of the script is, from 1.

        The same start is the same incarnation, however often it begins.

        Raises:
            UnknownJob: there is none.
            Conflict: a later one has begun.
        """

    @abstractmethod
    def tell(self, job: str, incarnation: int, calls: Iterable[TrialCall]) -> str:
        """Keep calls; one that is kept already is not kept twice. Returns the trial's study.

        Raises:
            UnknownJob: there is none.
            Conflict: a later incarnation has begun, or this one never has.
        """

    @abstractmethod
    def waiting(self, study: str, limit: int = 1000) -> tuple[WaitingCall, ...]:
        """Calls of a study's trials without an answer, in the order in which they came."""

    @abstractmethod
    def answer(self, answers: Iterable[GivenAnswer]) -> None:
        """Keep answers; the first to a call stays, one to no call is passed over."""

    @abstractmethod
    def answers(self, job: str, incarnation: int, after: int) -> tuple[TrialAnswer, ...]:
        """The answers to an incarnation's calls beyond the one of number `after`, by number."""


class Leases(ABC):
    """Who drives each study of one store: one holder at a time."""

    @abstractmethod
    def take(self, study: str, holder: str, now_seconds: float, seconds: float) -> None:
        """Drive a study for so long from now, or for longer.

        Raises:
            Conflict: another holder does.
        """

    @abstractmethod
    def leave(self, study: str, holder: str) -> None:
        """Drive it no more. Whoever does not, may say so too."""

    @abstractmethod
    def holder(self, study: str, now_seconds: float) -> str | None:
        """Who drives a study now; None for nobody."""


def refuse_superseded(job: str, incarnation: int, latest: int) -> None:
    """Refuse an incarnation that is not the latest that has begun.

    Raises:
        Conflict: so it is.
    """
    if incarnation != latest:
        raise Conflict(f"incarnation {incarnation} of trial {job} is over: {latest} holds it")


def already_driven(study: str, holder: str, left_seconds: float) -> Conflict:
    """The refusal of a second driver."""
    return Conflict(
        f"study {study} is driven by {holder}: wait until it ends, or {left_seconds:.0f} s after "
        "it has died"
    )
