"""Rounds of questions to the providers: for what they sell, and for the instances that they list.

The rounds of each provider and kind run in workers of their own, one at a time. So a provider that
answers late, or never, delays neither the control loop nor another provider, and prices that do
not come delay no list. The loop takes the answers that are complete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Final

from autoscaler.clock import Clock
from autoscaler.controller.workers import CallKind, CallWorkers, InlineWorkers, SharedWorkers
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.instance import CloudInstance, Interruption
from autoscaler.domain.offer import Limit, Offer
from providers.base import Condition, Provider

_log = logging.getLogger(__name__)

# A provider whose round takes longer counts as silent, and is asked again in another worker.
DEADLINE_SECONDS: Final = 60.0
MOST_ROUNDS: Final = 3
"""Rounds of one provider and kind that may run at once, of which all but one are overdue."""
_KINDS: Final = (CallKind.PRICE, CallKind.LIST)
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
    None if the round was of the other kind, or the provider did not answer; `error` says why.
    """

    provider: str
    kind: CallKind
    began_seconds: float
    sold: tuple[tuple[Offer, ...], tuple[Limit, ...]] | None = None
    listing: ProviderListing | None = None
    condition: Condition = field(default_factory=Condition)
    error: str | None = None


@dataclass(slots=True)
class _Rounds:
    """Rounds of one kind to one provider. Moments are of the monotonic clock, in seconds."""

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

    `workers` run the rounds; None runs them inline.
    `on_news` is called after a round with another answer than the one before.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: Clock,
        interval_seconds: float = 0.0,
        workers: CallWorkers | None = None,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._workers = workers or SharedWorkers(InlineWorkers(), InlineWorkers())
        self._on_news = on_news
        self._rounds = {key: _Rounds() for key in product(providers, _KINDS)}
        self._lock = threading.Lock()

    def begin_due(self, now_seconds: float) -> None:
        """Begin each round that is due."""
        for (name, kind), rounds in self._rounds.items():
            moment_seconds = self._clock.monotonic()
            with self._lock:
                if not rounds.is_due(moment_seconds, self._interval_seconds):
                    continue
                rounds.begun += 1
                number = rounds.begun
                rounds.began_seconds = rounds.running[number] = moment_seconds
            run = partial(self._run, name, kind, number, now_seconds)
            self._workers.of(kind, name).submit(run)

    def take(self) -> tuple[Answer, ...]:
        """Return the newest answer to each kind of round since the last call.

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

    def overdue_seconds(self) -> Mapping[tuple[str, CallKind], float]:
        """Return the rounds without an answer in time, with the seconds since the question."""
        moment_seconds = self._clock.monotonic()
        with self._lock:
            waits = {
                key: moment_seconds - min(rounds.running.values())
                for key, rounds in self._rounds.items()
                if rounds.running
            }
        return {key: wait for key, wait in waits.items() if wait >= DEADLINE_SECONDS}

    def _run(self, name: str, kind: CallKind, number: int, now_seconds: float) -> None:
        rounds, began_seconds = self._rounds[name, kind], self._clock.monotonic()
        answer = _ask(name, self._providers[name], kind, now_seconds)
        with self._lock:
            del rounds.running[number]
            rounds.took_seconds = self._clock.monotonic() - began_seconds
            rounds.ended[number] = answer
            before, rounds.before = rounds.before, answer
        if not _is_same(answer, before):
            self._on_news()


def _is_same(answer: Answer, before: Answer | None) -> bool:
    return before is not None and (answer.sold, answer.listing, answer.error) == (
        *(before.sold, before.listing, before.error),
    )


def _ask(name: str, provider: Provider, kind: CallKind, now_seconds: float) -> Answer:
    """Ask a provider the questions of one kind of round, and for its condition."""
    answer = Answer(name, kind, now_seconds)
    try:
        if kind is CallKind.PRICE:
            sold = (tuple(provider.offers()), tuple(provider.limits()))
            answer = replace(answer, sold=sold)
        else:
            instances = tuple(provider.instances())
            listing = ProviderListing(instances, tuple(provider.interruptions()))
            answer = replace(answer, listing=listing)
        return replace(answer, condition=provider.condition())
    except ProviderError as error:
        _log.warning("provider %s does not answer: %s", name, error)
        problem = f"{name}: {error}"
    except Exception as error:  # a defect of one provider must not stop the others
        _log.exception("provider %s can't be asked", name)
        problem = f"{name}: {type(error).__name__}: {error}"
    with suppress(Exception):  # a defect, too: `condition` never fails
        answer = replace(answer, condition=provider.condition())
    return replace(answer, error=problem)
