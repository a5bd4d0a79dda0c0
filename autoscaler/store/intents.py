"""Calls to a cloud: written down before they are made, settled when their outcome is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.intent import Intent, IntentKind, IntentState


class Intents(ABC):
    """The intents of one store; they are written by `Instances`. `attempts` counts failed calls.

    After a crash those that are pending are made again: a launch with its token is the same
    launch, and terminating twice is terminating once.
    """

    @abstractmethod
    def pending(self, now_seconds: float) -> tuple[Intent, ...]:
        """The calls that are due, the oldest first.

        A termination waits until the launch of its instance is settled: before, it is not known
        what to terminate, and a launch that is on its way would be left over.
        """

    @abstractmethod
    def of_instance(self, instance: str) -> tuple[Intent, ...]:
        """All intents of one instance, the oldest first."""

    def done(self, intent: int) -> None:
        """The call succeeded. To say so again changes nothing.

        Raises:
            Conflict: there is no such intent, or it was given up.
        """
        self._change(intent, _done)

    def failed(
        self, intent: int, error: str, retry_seconds: float | None, is_unsent: bool = False
    ) -> None:
        """Put a failed call off until `retry_seconds`, or give the intent up if that is None.

        A launch is given up with `Instances.launch_failed`, which ends its instance too. A
        launch that is settled already stays so; a termination that was told to the cloud but
        had no effect may be made again. `is_unsent` states that no call of the intent so far can
        have launched an instance, and clears `Intent.sent_seconds`.

        Raises:
            Conflict: there is no such intent, or it is a launch and not to be made again.
        """
        self._change(intent, lambda known: _failed(known, error, retry_seconds, is_unsent))

    @abstractmethod
    def _change(self, intent: int, change: Callable[[Intent], Intent]) -> None:
        """Keep what `change` makes of an intent; nothing if it raises."""


def unknown_intent(intent: int) -> Conflict:
    """The error that there is no such intent."""
    return Conflict(f"no intent {intent}: it is not of this store")


def _done(intent: Intent) -> Intent:
    if intent.state is IntentState.FAILED:
        raise Conflict(f"intent {intent.id} was given up: {intent.error}")
    return replace(intent, state=IntentState.DONE, error=None)


def _failed(intent: Intent, error: str, retry_seconds: float | None, is_unsent: bool) -> Intent:
    if intent.kind is IntentKind.LAUNCH:
        if intent.state is not IntentState.PENDING:
            return intent
        if retry_seconds is None:
            raise Conflict(f"intent {intent.id} is a launch: end its instance, {intent.instance}")
    sent_seconds = None if is_unsent else intent.sent_seconds
    tried = replace(intent, attempts=intent.attempts + 1, error=error, sent_seconds=sent_seconds)
    if retry_seconds is None:
        return replace(tried, state=IntentState.FAILED)
    return replace(tried, state=IntentState.PENDING, not_before_seconds=retry_seconds)
