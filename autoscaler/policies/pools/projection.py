"""Expected rates on several devices of a kind that was measured on one device only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.policies.pools.pool import Pool

Size = tuple[int, int]
Rates = Callable[[ThroughputModel, Sequence[Size]], Sequence[float]]


def most_measured(model: ThroughputModel | None) -> int:
    """Return the most devices that step times were measured on; 0 for none."""
    return max((devices for _, devices in model.measured), default=0) if model else 0


class Projection:
    """One job's scaling, projected from the kind on which it was measured on the most devices.

    ``thr_A(N) = thr_A(1) / thr_B(1) * thr_B(N)`` until the job is measured on several devices of
    A.

    Source: Sia (SOSP'23), section 3.2.
    """

    def __init__(
        self, models: Mapping[str, ThroughputModel], parts: Mapping[str, Pool], rates: Rates
    ) -> None:
        """Create the projection of a job.

        Args:
            models: model of each kind of device.
            parts: machines of each kind that the job may use.
            rates: function of a model and (machines, devices) sizes to useful examples per second.
        """
        self._models = models
        self._parts = parts
        self._rates = rates
        modelled_kinds = [kind for kind in parts if kind in models]
        self._best = max(
            modelled_kinds, key=lambda kind: most_measured(models[kind]), default=None
        )

    def on(self, kind: str, sizes: Sequence[Size]) -> list[float]:
        """Return useful examples per second at (machines, devices) of a kind that has a model."""
        source_kind = self._best or kind
        model, source_model = self._models[kind], self._models[source_kind]
        measured, source_measured = most_measured(model), most_measured(source_model)
        if measured > 1 or source_measured == measured:
            return list(self._rates(model, sizes))
        largest = max(self._parts[source_kind].capacity.values())
        source_sizes = [(-(-devices // max(largest, 1)), devices) for _, devices in sizes]
        source_single, *source_rates = self._rates(source_model, [(1, 1), *source_sizes])
        if measured == 0:
            return source_rates
        (single,) = self._rates(model, [(1, 1)])
        return [single / source_single * rate for rate in source_rates]
