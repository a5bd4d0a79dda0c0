"""What is expected of a job on a kind of device on which it was measured on one device alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.policies.pool import Pool

Size = tuple[int, int]
Rates = Callable[[ThroughputModel, Sequence[Size]], Sequence[float]]


def most_measured(model: ThroughputModel | None) -> int:
    """The most devices that step times were measured on; 0 for none."""
    return max((devices for _, devices in model.measured), default=0) if model else 0


class Projection:
    """One job's scaling carried from the kind on which it was measured on most devices.

    ``thr_A(N) = thr_A(1) / thr_B(1) * thr_B(N)`` until A was measured on several devices itself.

    Source: Sia (SOSP'23), section 3.2.
    """

    def __init__(
        self, models: Mapping[str, ThroughputModel], parts: Mapping[str, Pool], rates: Rates
    ) -> None:
        """`rates` are useful examples a second, by a model, in sizes (machines, devices)."""
        self._models = models
        self._parts = parts
        self._rates = rates
        known = [kind for kind in parts if kind in models]
        self._best = max(known, key=lambda kind: most_measured(models[kind]), default=None)

    def on(self, kind: str, sizes: Sequence[Size]) -> list[float]:
        """Useful examples a second on so many (machines, devices) of a kind that has a model."""
        where = self._best or kind
        model, best = self._models[kind], self._models[where]
        measured, elsewhere = most_measured(model), most_measured(best)
        if measured > 1 or elsewhere == measured:
            return list(self._rates(model, sizes))
        largest = max(self._parts[where].capacity.values())
        there = [(-(-devices // max(largest, 1)), devices) for _, devices in sizes]
        one, *several = self._rates(best, [(1, 1), *there])
        if measured == 0:
            return several
        (alone,) = self._rates(model, [(1, 1)])
        return [alone / one * rate for rate in several]
