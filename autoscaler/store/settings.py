"""What holds until somebody takes it back: values chosen once, a freeze, studies to be stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from autoscaler.domain.trial import StudyStop

_FROZEN = "frozen"


def _stop_key(study: str, driver: str, at_once: bool) -> str:
    return f"stop {'at once ' if at_once else ''}{study} of {driver}"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Nothing is to be bought or given back, because a person said so."""

    since_seconds: float
    person: str


class Settings(ABC):
    """The settings of one store."""

    def frozen(self) -> Freeze | None:
        """Who froze the controller, if somebody did and nobody has released it."""
        text = self._value(_FROZEN)
        if text is None:
            return None
        since, _, person = text.partition(" ")
        return Freeze(float(since), person)

    def freeze(self, freeze: Freeze) -> None:
        """From now on nothing is bought or given back; the first to say so stands."""
        self.once(_FROZEN, lambda: f"{freeze.since_seconds!r} {freeze.person}")

    def unfreeze(self) -> None:
        """Let the controller act again."""
        self._drop(_FROZEN)

    def stop_study(self, study: str, driver: str, at_once: bool) -> None:
        """Have a driver end its study: with the trials that run, or `at_once`."""
        self.once(_stop_key(study, driver, at_once), lambda: "stop")

    def study_stop(self, study: str, driver: str) -> StudyStop:
        """Whether a driver is to end its study."""
        if self._value(_stop_key(study, driver, at_once=True)) is not None:
            return StudyStop.AT_ONCE
        if self._value(_stop_key(study, driver, at_once=False)) is not None:
            return StudyStop.WITH_ITS_TRIALS
        return StudyStop.NOT

    def forget_stop(self, study: str, driver: str) -> None:
        """The driver has ended."""
        for at_once in (True, False):
            self._drop(_stop_key(study, driver, at_once))

    def controller_id(self) -> str:
        """The id of this deployment, made on the first call; its instances carry it as a tag."""
        return self.once("controller_id", lambda: str(uuid4()))

    @abstractmethod
    def once(self, key: str, make: Callable[[], str]) -> str:
        """The value of `key`; the first call of all makes it. It is kept as it is, in clear."""

    @abstractmethod
    def _value(self, key: str) -> str | None:
        """The value of `key`, if it was chosen."""

    @abstractmethod
    def _drop(self, key: str) -> None:
        """Forget the value of `key`."""
