"""Calls of trials to the drivers of their studies, their answers, and leases of drivers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from autoscaler.domain.errors import Conflict
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, WaitingCall


class Trials(ABC):
    """Calls of the trials of one store. A trial is a job whose spec names a study.

    An incarnation is one start of a trial's script. Once the next incarnation begins, calls of
    the earlier one are refused. A distributed trial has one incarnation on each instance; there
    only a later incarnation on the same instance supersedes it.
    """

    @abstractmethod
    def begin(self, job: str, instance: str, started_seconds: float) -> int:
        """Return the number of the incarnation for a start of the script, from 1.

        Repeated calls for the same start return the same number.

        Raises:
            UnknownJob: no job has this id.
            Conflict: a later incarnation has begun.
        """

    @abstractmethod
    def tell(self, job: str, incarnation: int, calls: Iterable[TrialCall]) -> str:
        """Store calls, each number once, and return the study of the trial.

        Raises:
            UnknownJob: no job has this id.
            Conflict: a later incarnation has begun, or this incarnation never began.
        """

    @abstractmethod
    def waiting(self, study: str, limit: int = 1000) -> tuple[WaitingCall, ...]:
        """Return at most `limit` unanswered calls of a study's trials, in order of arrival."""

    @abstractmethod
    def answer(
        self, study: str, answers: Iterable[GivenAnswer], driver: str | None = None
    ) -> None:
        """Store answers to calls of a study's trials.

        Later answers to the same call, and answers to no call of the study, are ignored.

        Raises:
            Conflict: `driver` is not None and was not the last to take the study's lease.
        """

    @abstractmethod
    def answers(self, job: str, incarnation: int, after: int) -> tuple[TrialAnswer, ...]:
        """Return the answers to an incarnation's calls with numbers above `after`, by number."""


class Leases(ABC):
    """Leases on the studies of one store. One driver at a time holds the lease of a study.

    The last driver that took the lease may write for the study until another takes it, also
    after the lease is over: each write that names its driver checks this in its transaction.
    """

    @abstractmethod
    def take(
        self, study: str, holder: str, now_seconds: float, seconds: float, renews: bool = False
    ) -> None:
        """Acquire or renew the lease of a study, until `seconds` from now.

        A holder that `renews` has held the lease before, and relies on that no other has since.

        Raises:
            Conflict: another holder has the lease, or has had it since.
        """

    @abstractmethod
    def leave(self, study: str, holder: str) -> None:
        """Release the lease of a study. Releasing a lease that is not held does nothing."""

    @abstractmethod
    def holder(self, study: str, now_seconds: float) -> str | None:
        """Return the current holder of the lease of a study; None if no lease is in force."""


def refuse_superseded(job: str, incarnation: int, latest: int) -> None:
    """Check that an incarnation is the latest.

    Raises:
        Conflict: a later incarnation has begun, or this incarnation never began.
    """
    if incarnation != latest:
        raise Conflict(f"incarnation {incarnation} of trial {job} is over: {latest} holds it")


def require_driver(study: str, driver: str, latest: str | None) -> None:
    """Check that a driver was the `latest` to take the lease of a study; None: nobody holds it.

    Raises:
        Conflict: another driver has taken the lease, or nobody has.
    """
    if driver != latest:
        raise Conflict(f"study {study} is driven by {latest or 'nobody'}, not by {driver}")


def already_driven(study: str, holder: str, left_seconds: float) -> Conflict:
    """Return the error for a second driver; the lease ends in `left_seconds`."""
    return Conflict(
        f"study {study} is driven by {holder}: wait until that driver ends; if it has died, its "
        f"lease ends in {left_seconds:.0f} s"
    )
