"""Values that are chosen once for a store and stay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from uuid import uuid4


class Settings(ABC):
    """The settings of one store."""

    def controller_id(self) -> str:
        """The id of this deployment, made on the first call; its instances carry it as a tag."""
        return self.once("controller_id", lambda: str(uuid4()))

    @abstractmethod
    def once(self, key: str, make: Callable[[], str]) -> str:
        """The value of `key`; the first call of all makes it. It is kept as it is, in clear."""
