"""What holds for a whole store: values chosen once, and whether its controller is frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

_FROZEN = "frozen"


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
