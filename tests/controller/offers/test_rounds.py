"""Rounds of questions to providers that answer at once, late, never, or with an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.controller.offers.rounds import (
    DEADLINE_SECONDS,
    MOST_ROUNDS,
    Answer,
    ProviderRounds,
)
from autoscaler.controller.workers import CallKind, InlineWorkers, Workers
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import CloudInstance, Interruption
from autoscaler.domain.offer import Limit, Offer
from providers.base import Provider
from tests.controller.cloud import offer

PRICE = CallKind.PRICE


class Counting(Provider):
    """Provider whose offers carry the number of the question."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    @property
    def identity(self) -> None:
        return None

    def offers(self) -> Sequence[Offer]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return (offer(f"offer-{self.asked}"),)

    def limits(self) -> Sequence[Limit]:
        return ()

    def instances(self) -> Sequence[CloudInstance]:
        return ()

    def interruptions(self) -> Sequence[Interruption]:
        return ()

    launch = terminate = None  # type: ignore[assignment]


@dataclass
class HeldWorkers:
    """Workers whose calls a test makes."""

    waiting: list[Callable[[], None]] = field(default_factory=list)

    def submit(self, call: Callable[[], None]) -> object:
        self.waiting.append(call)
        return None


class Asked:
    """Two providers; rounds for the prices of "slow" run when the test says so."""

    def __init__(self, interval_seconds: float = 5.0) -> None:
        self.clock = VirtualClock(1000.0)
        self.slow, self.quick = Counting(), Counting()
        self.workers = HeldWorkers()
        self.news = 0
        providers: dict[str, Provider] = {"slow": self.slow, "quick": self.quick}
        self.rounds = ProviderRounds(providers, self.clock, interval_seconds, self, self._on_news)

    def answers(self, seconds: float = 0.0) -> list[str]:
        """Let time pass, begin the rounds that are due, and return who has sent prices."""
        return [answer.provider for answer in self.taken(seconds) if answer.kind is PRICE]

    def taken(self, seconds: float = 0.0) -> tuple[Answer, ...]:
        """Let time pass, begin the rounds that are due, and return the answers."""
        self.clock.advance(seconds)
        self.rounds.begin_due(self.clock.now())
        return self.rounds.take()

    def of(self, kind: CallKind, provider: str) -> Workers:
        return self.workers if (kind, provider) == (PRICE, "slow") else InlineWorkers()

    def _on_news(self) -> None:
        self.news += 1


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_provider_without_an_answer_does_not_delay_the_other(asked: Asked) -> None:
    assert asked.answers() == ["quick"]
    assert asked.answers(5.0) == ["quick"]
    asked.workers.waiting.pop()()
    assert asked.answers(5.0) == ["slow", "quick"]


def test_a_provider_is_asked_again_once_its_interval_has_passed(asked: Asked) -> None:
    asked.answers()
    assert asked.answers(4.9) == []
    assert asked.answers(0.1) == ["quick"]
    assert asked.quick.asked == 2


def test_a_round_that_is_overdue_is_reported_and_repeated_a_few_times(asked: Asked) -> None:
    asked.answers()
    asked.answers(DEADLINE_SECONDS - 1)
    assert asked.rounds.overdue_seconds() == {}
    for number in range(2, MOST_ROUNDS + 3):
        asked.answers(DEADLINE_SECONDS)
        assert len(asked.workers.waiting) == min(number, MOST_ROUNDS)
    assert asked.rounds.overdue_seconds()["slow", PRICE] > 3 * DEADLINE_SECONDS
    for call in asked.workers.waiting:
        call()
    assert asked.rounds.overdue_seconds() == {}


def test_an_answer_that_a_later_one_has_overtaken_is_dropped(asked: Asked) -> None:
    asked.answers()
    asked.answers(DEADLINE_SECONDS)
    first, second = asked.workers.waiting
    second()
    assert "slow" in asked.answers()
    first()
    assert asked.answers() == []


def test_a_late_answer_that_no_later_one_has_overtaken_is_used(asked: Asked) -> None:
    asked.answers()
    asked.answers(DEADLINE_SECONDS)
    asked.workers.waiting[0]()
    asked.clock.advance(1.0)
    (late,) = (answer for answer in asked.rounds.take() if answer.kind is PRICE)
    assert (late.provider, late.began_seconds) == ("slow", 1000.0)


@pytest.mark.parametrize(
    ("error", "text"),
    [(Unavailable("closed"), "quick: closed"), (KeyError("zone"), "quick: KeyError: 'zone'")],
)
def test_an_error_of_one_part_leaves_the_others(asked: Asked, error: Exception, text: str) -> None:
    asked.quick.error = error
    prices, listing = (answer for answer in asked.taken() if answer.provider == "quick")
    assert prices.error == text and prices.sold is None
    assert listing.error is None and listing.listing is not None


def test_prices_that_do_not_come_delay_no_list(asked: Asked) -> None:
    for seconds in (0.0, 5.0, DEADLINE_SECONDS):
        lists = [answer.provider for answer in asked.taken(seconds) if answer.listing is not None]
        assert lists == ["slow", "quick"]
    assert set(asked.rounds.overdue_seconds()) == {("slow", PRICE)}


def test_only_another_answer_is_news(asked: Asked) -> None:
    asked.quick.offers = lambda: ()  # type: ignore[method-assign]
    asked.answers()
    asked.answers(5.0)
    assert asked.news == 3
    asked.quick.offers = lambda: (offer(),)  # type: ignore[method-assign]
    asked.answers(5.0)
    assert asked.news == 4


def test_slow_rounds_take_a_tenth_of_the_time(asked: Asked) -> None:
    def take_long() -> Sequence[Limit]:
        asked.clock.advance(3.0)
        return ()

    asked.quick.limits = take_long  # type: ignore[method-assign]
    asked.answers()
    assert asked.answers(26.9) == []
    assert asked.answers(0.1) == ["quick"]
