"""Repository of intents: calls to a cloud, recorded before the call and settled after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.intent import Intent, IntentKind, IntentState


class Intents(ABC):
    """Intents of one store, which `Instances` writes. `attempts` counts failed calls.

    After a crash, pending calls are made again. Both kinds are idempotent: a repeated launch has
    the same token, and a repeated termination has no further effect.
    """

    @abstractmethod
    def pending(self, now_seconds: float) -> tuple[Intent, ...]:
        """Return the calls that are due, the oldest first.

        A call is due too if its time is further away than the longest back-off.

        A termination is due only after the launch of its instance is settled. Before that, the
        instance may not be known, and a launch in progress would leave an orphan.
        """

    @abstractmethod
    def of_instance(self, instance: str) -> tuple[Intent, ...]:
        """Return all intents of one instance, the oldest first."""

    def done(self, intent: int) -> None:
        """Mark the call of an intent as successful. Repeated calls change nothing.

        Raises:
            Conflict: no intent has this id, or the intent was given up.
        """
        self._change(intent, _done)

    def failed(
        self, intent: int, error: str, retry_seconds: float | None, is_unsent: bool = False
    ) -> None:
        """Schedule the retry of a failed call, or give the intent up.

        Use `Instances.launch_failed` to give up a launch, which ends its instance too. A settled
        launch does not change. A termination that succeeded without effect becomes pending again.

        Args:
            intent: id of the intent.
            error: message of the failure.
            retry_seconds: time of the retry in seconds since the epoch; None gives the intent up.
            is_unsent: whether no call so far can have launched an instance. If so,
                `Intent.sent_seconds` is cleared.

        Raises:
            Conflict: no intent has this id, or the intent is a launch and `retry_seconds` is None.
        """
        self._change(intent, lambda known: _failed(known, error, retry_seconds, is_unsent))

    @abstractmethod
    def _change(self, intent: int, change: Callable[[Intent], Intent]) -> None:
        """Store the result of `change` for an intent; nothing if it raises."""


def unknown_intent(intent: int) -> Conflict:
    """Return the error for an id that no intent has."""
    return Conflict(f"no intent {intent} in this store")


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
    failed = replace(intent, attempts=intent.attempts + 1, error=error, sent_seconds=sent_seconds)
    if retry_seconds is None:
        return replace(failed, state=IntentState.FAILED)
    return replace(failed, state=IntentState.PENDING, not_before_seconds=retry_seconds)
