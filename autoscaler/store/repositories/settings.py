"""Settings that hold until they are withdrawn: ids, a freeze, and stop requests of studies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from autoscaler.domain.trial import StopRequest, StudyStop

_FROZEN = "frozen"
_RESTORATION = "restoration"


def _stop_key(study: str, driver: str, at_once: bool) -> str:
    return f"stop {'at once ' if at_once else ''}{study} of {driver}"


def _removal_key(person: str) -> str:
    return f"removed person {person}"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Request of a person that the controller neither launches nor terminates instances."""

    since_seconds: float
    person: str


@dataclass(frozen=True, slots=True)
class Restoration:
    """Time as of which a store was backed up, and the time at which it was restored."""

    backup_seconds: float
    restored_seconds: float


class Settings(ABC):
    """The settings of one store."""

    def restoration(self) -> Restoration | None:
        """Return the last restoration of this store from a backup; None if there was none."""
        text = self._value(_RESTORATION)
        return None if text is None else Restoration(*map(float, text.split()))

    def note_restoration(self, restoration: Restoration) -> None:
        """Record that this store was restored."""
        self._drop(_RESTORATION)
        text = f"{restoration.backup_seconds!r} {restoration.restored_seconds!r}"
        self.once(_RESTORATION, lambda: text)

    def frozen(self) -> Freeze | None:
        """Return the freeze in force; None if there is none."""
        text = self._value(_FROZEN)
        if text is None:
            return None
        since, _, person = text.partition(" ")
        return Freeze(float(since), person)

    def freeze(self, freeze: Freeze) -> None:
        """Freeze the controller. An earlier freeze stays in force."""
        self.once(_FROZEN, lambda: f"{freeze.since_seconds!r} {freeze.person}")

    def unfreeze(self) -> None:
        """End the freeze, if there is one."""
        self._drop(_FROZEN)

    def stop_study(self, study: str, driver: str, request: StopRequest) -> None:
        """Request that a driver ends its study. An earlier request of the same kind stays."""
        at_once = request.stop is StudyStop.AT_ONCE
        text = "stop" if request.at_seconds is None else f"{request.at_seconds!r} {request.person}"
        self.once(_stop_key(study, driver, at_once), lambda: text)

    def stop_request(self, study: str, driver: str) -> StopRequest | None:
        """Return the stop request for a driver's study; None if there is none.

        One that ends the running trials, too, comes first.
        """
        for stop in (StudyStop.AT_ONCE, StudyStop.WITH_ITS_TRIALS):
            text = self._value(_stop_key(study, driver, stop is StudyStop.AT_ONCE))
            if text is not None:
                at, _, person = text.partition(" ")
                return StopRequest(stop, float(at), person) if person else StopRequest(stop)
        return None

    def study_stop(self, study: str, driver: str) -> StudyStop:
        """Return how a driver is to end its study; `StudyStop.NOT` if nobody requested it."""
        request = self.stop_request(study, driver)
        return StudyStop.NOT if request is None else request.stop

    def forget_stop(self, study: str, driver: str) -> None:
        """Remove the stop requests of a driver that has ended."""
        for at_once in (True, False):
            self._drop(_stop_key(study, driver, at_once))

    def note_removal(self, person: str) -> None:
        """Record that an admin removed a person, for whom no login makes a new entry."""
        self._put(_removal_key(person), "removed")

    def was_removed(self, person: str) -> bool:
        """Return whether an admin removed a person of this name, who may have been added since."""
        return self._value(_removal_key(person)) is not None

    def controller_id(self) -> str:
        """Return the id of this deployment, made on the first call. Its instances are tagged."""
        return self.once("controller_id", lambda: str(uuid4()))

    def adopt(self, controller: str) -> None:
        """Replace the id of this deployment by that of a lost one."""
        self._drop("controller_id")
        self.once("controller_id", lambda: controller)

    def known(self, key: str) -> str | None:
        """Return the value of `key`; None if it has none."""
        return self._value(key)

    def replace(self, key: str, value: str) -> None:
        """Store the value of `key` in place of an earlier one."""
        self._put(key, value)

    def mark(self, key: str, value: str) -> None:
        """Store a value of `key` in place of an earlier one, for a test of the store."""
        self._put(f"mark {key}", value)

    @abstractmethod
    def once(self, key: str, make: Callable[[], str]) -> str:
        """Return the value of `key`, which the first call makes. It is stored unencrypted."""

    @abstractmethod
    def _value(self, key: str) -> str | None:
        """Return the value of `key`; None if it has none."""

    @abstractmethod
    def _put(self, key: str, value: str) -> None:
        """Store the value of `key`."""

    @abstractmethod
    def _drop(self, key: str) -> None:
        """Delete the value of `key`, if it has one."""
