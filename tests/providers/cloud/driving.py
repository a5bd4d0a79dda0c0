"""Small controller that repeats its calls, over the fake of any cloud."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
)
from autoscaler.domain.instance import CloudState
from providers.base import Provider
from tests.providers.cloud.world import FakeCloud

_NOTHING_LAUNCHED = (InsufficientCapacity, QuotaExceeded, PermissionDenied, NotFound)
_MOST_TICKS = 25
_TICK_SECONDS = 2.0


@dataclass
class Slot:
    """Place of one wanted instance."""

    name: str
    generation: int = 0
    instance: str | None = None

    @property
    def token(self) -> str:
        return f"{self.name}-{self.generation}"


@dataclass
class Driver:
    """Controller that fills all `slots`, or clears them, despite the cloud's faults."""

    world: FakeCloud
    provider: Provider
    slots: list[Slot]
    errors: list[ProviderError] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)

    def fill(self) -> None:
        """Launch until the provider lists every slot's instance as running."""
        for _ in range(_MOST_TICKS):
            self._observe()
            for slot in self.slots:
                self._launch(slot)
            if all(slot.instance for slot in self.slots) and self._running() == self._wanted():
                return
            self.world.pass_time(_TICK_SECONDS)
        raise AssertionError(f"the slots were not filled: {self.errors[-3:]}")

    def clear(self) -> None:
        """Terminate until the provider lists all instances as ended."""
        for _ in range(_MOST_TICKS):
            self._observe()
            if self._wanted() <= self.ended:
                return
            for instance_id in sorted(self._wanted() - self.ended):
                try:
                    self.provider.terminate([instance_id])
                except ProviderError as error:
                    self.errors.append(error)
            self.world.pass_time(_TICK_SECONDS)
        raise AssertionError(f"the slots were not cleared: {self.errors[-3:]}")

    def _launch(self, slot: Slot) -> None:
        if slot.instance is not None:
            return
        try:
            slot.instance = self.provider.launch(
                self.world.request(slot.token, self.world.spot_offer)
            ).id
        except ProviderError as error:
            self.errors.append(error)
            slot.generation += isinstance(error, _NOTHING_LAUNCHED)

    def _observe(self) -> None:
        for ask in (self.provider.offers, self.provider.limits, self.provider.interruptions):
            try:
                ask()
            except ProviderError as error:
                self.errors.append(error)
        self._listed()

    def _listed(self) -> dict[str, CloudState]:
        try:
            listed = self.provider.instances()
        except ProviderError as error:
            self.errors.append(error)
            return {}
        states = {instance.id: instance.state for instance in listed}
        self.ended |= {ended for ended, state in states.items() if state is CloudState.TERMINATED}
        return states

    def _running(self) -> set[str]:
        states = self._listed()
        return {running for running, state in states.items() if state is CloudState.RUNNING}

    def _wanted(self) -> set[str]:
        return {slot.instance for slot in self.slots if slot.instance is not None}
