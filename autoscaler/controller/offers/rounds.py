"""Rounds of questions to the providers: offers, limits, instances, interruptions, condition.

The rounds of each provider run in workers of their own, one at a time. So a provider that answers
late, or never, delays neither the control loop nor another provider. The loop takes the answers
that are complete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from autoscaler.clock import Clock
from autoscaler.controller.workers import InlineWorkers, Workers
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.instance import CloudInstance, Interruption
from autoscaler.domain.offer import Limit, Offer
from providers.base import Condition, Provider

_log = logging.getLogger(__name__)

Part = TypeVar("Part")

# A provider whose round takes longer counts as silent, and is asked again in another worker.
DEADLINE_SECONDS: Final = 60.0
MOST_ROUNDS: Final = 3
"""Rounds of one provider that may run at the same time, of which all but one are overdue."""
# Rest after a slow round, in times of the round, so that rounds take at most a tenth of the time.
_REST_FACTOR: Final = 10.0
_LONGEST_REST_SECONDS: Final = 60.0
_SLOW_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProviderListing:
    """Instances and interruptions of one provider."""

    instances: tuple[CloudInstance, ...]
    interruptions: tuple[Interruption, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a provider to one round of questions.

    `began_seconds` is the time at which the round began, since the epoch. `sold` and `listing` are
    None if the provider did not answer that part; `errors` say why.
    """

    provider: str
    began_seconds: float
    sold: tuple[tuple[Offer, ...], tuple[Limit, ...]] | None
    listing: ProviderListing | None
    condition: Condition
    errors: tuple[str, ...]


@dataclass(slots=True)
class _Rounds:
    """Rounds of one provider. Moments are of the monotonic clock, in seconds."""

    begun: int = 0
    began_seconds: float = float("-inf")
    took_seconds: float = 0.0
    running: dict[int, float] = field(default_factory=dict)
    ended: dict[int, Answer] = field(default_factory=dict)
    taken: int = 0
    before: Answer | None = None

    def is_due(self, moment_seconds: float, interval_seconds: float) -> bool:
        """Return whether the next round has to begin."""
        if self.running:
            is_overdue = moment_seconds - self.began_seconds >= DEADLINE_SECONDS
            return is_overdue and len(self.running) < MOST_ROUNDS
        is_slow = self.took_seconds >= _SLOW_SECONDS
        rest_seconds = min(_REST_FACTOR * self.took_seconds, _LONGEST_REST_SECONDS)
        rest_seconds = max(interval_seconds, rest_seconds if is_slow else 0.0)
        return moment_seconds - self.began_seconds >= rest_seconds


class ProviderRounds:
    """Rounds of all providers of a deployment.

    `workers_of` returns the workers for the rounds of a provider; None runs rounds inline.
    `on_news` is called after a round with another answer than the one before.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: Clock,
        interval_seconds: float = 0.0,
        workers_of: Callable[[str], Workers] | None = None,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._workers_of = workers_of or (lambda name: InlineWorkers())
        self._on_news = on_news
        self._rounds = {name: _Rounds() for name in providers}
        self._lock = threading.Lock()

    def begin_due(self, now_seconds: float) -> None:
        """Begin a round of each provider whose next one is due."""
        for name, rounds in self._rounds.items():
            moment_seconds = self._clock.monotonic()
            with self._lock:
                if not rounds.is_due(moment_seconds, self._interval_seconds):
                    continue
                rounds.begun += 1
                number = rounds.begun
                rounds.began_seconds = rounds.running[number] = moment_seconds
            self._workers_of(name).submit(partial(self._run, name, number, now_seconds))

    def take(self) -> tuple[Answer, ...]:
        """Return the newest answer of each provider that has answered since the last call.

        An answer that an answer to a later round has overtaken is dropped.
        """
        answers = []
        with self._lock:
            for rounds in self._rounds.values():
                newest = max(rounds.ended, default=0)
                if newest > rounds.taken:
                    rounds.taken = newest
                    answers.append(rounds.ended[newest])
                rounds.ended.clear()
        return tuple(answers)

    def overdue_seconds(self) -> Mapping[str, float]:
        """Return the providers that do not answer in time, with the seconds since the question."""
        moment_seconds = self._clock.monotonic()
        with self._lock:
            waits = {
                name: moment_seconds - min(rounds.running.values())
                for name, rounds in self._rounds.items()
                if rounds.running
            }
        return {name: wait for name, wait in waits.items() if wait >= DEADLINE_SECONDS}

    def _run(self, name: str, number: int, now_seconds: float) -> None:
        rounds, began_seconds = self._rounds[name], self._clock.monotonic()
        answer = _ask(name, self._providers[name], now_seconds)
        with self._lock:
            del rounds.running[number]
            rounds.took_seconds = self._clock.monotonic() - began_seconds
            rounds.ended[number] = answer
            before, rounds.before = rounds.before, answer
        if not _is_same(answer, before):
            self._on_news()


def _is_same(answer: Answer, before: Answer | None) -> bool:
    return before is not None and (answer.sold, answer.listing, answer.errors) == (
        *(before.sold, before.listing, before.errors),
    )


def _ask(name: str, provider: Provider, now_seconds: float) -> Answer:
    """Ask a provider everything. An error of one part does not affect the others."""
    errors: dict[str, None] = {}
    sold = _part(name, lambda: (tuple(provider.offers()), tuple(provider.limits())), errors)
    listing = _part(
        name,
        lambda: ProviderListing(tuple(provider.instances()), tuple(provider.interruptions())),
        errors,
    )
    condition = _part(name, provider.condition, errors) or Condition()
    return Answer(name, now_seconds, sold, listing, condition, tuple(errors))


def _part(name: str, ask: Callable[[], Part], errors: dict[str, None]) -> Part | None:
    """Return one part of an answer; None after an error, which is added to `errors`."""
    try:
        return ask()
    except ProviderError as error:
        _log.warning("provider %s does not answer: %s", name, error)
        errors[f"{name}: {error}"] = None
    except Exception as error:  # a defect of one provider must not stop the others
        _log.exception("provider %s can't be asked", name)
        errors[f"{name}: {type(error).__name__}: {error}"] = None
    return None
