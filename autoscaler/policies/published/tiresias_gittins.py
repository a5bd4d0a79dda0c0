"""Tiresias with a known distribution of service: the Gittins index in place of least service.

Source: Gu et al., Tiresias (NSDI'19), section 3.2, discretised two-dimensional Gittins index.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.policies.published.tiresias import Rank, TiresiasParameters, TiresiasPolicy, Turn

_SECONDS_PER_HOUR = 3600.0
# Cumulative service of 1,000 jobs: (device-hours, jobs that need no more), from the 82,247 jobs of
# the Philly trace (Jeon et al., ATC'19).
_PHILLY = ((1.0 / 60.0, 0), (1.0, 768), (10.0, 936), (100.0, 979), (1000.0, 998), (4000.0, 1000))


def philly_services() -> tuple[float, ...]:
    """Return the service of 1,000 jobs as in the Philly trace, in device-seconds."""
    services: list[float] = []
    for (low, before), (high, until) in pairwise(_PHILLY):
        count = until - before
        services += [low * (high / low) ** ((index + 0.5) / count) for index in range(count)]
    return tuple(hours * _SECONDS_PER_HOUR for hours in services)


@dataclass(frozen=True, slots=True)
class GittinsParameters:
    """Distribution of service, and the queues.

    Attributes:
        services_device_seconds: service of ended jobs, all equally likely; by default from the
            published Philly trace, evenly by logarithm within each decade.
        quantum_device_seconds: service that the index looks ahead; 3,250 in the simulator of the
            authors.
        queues: queues as of Tiresias without a distribution.

    Raises:
        ValueError: there are no services, or a service or the quantum is not above 0.
    """

    services_device_seconds: tuple[float, ...] = field(default_factory=philly_services)
    quantum_device_seconds: float = 3250.0
    queues: TiresiasParameters = field(default_factory=TiresiasParameters)

    def __post_init__(self) -> None:
        if not self.services_device_seconds or min(self.services_device_seconds) <= 0:
            raise ValueError("services_device_seconds: must be one or more numbers above 0")
        if not self.quantum_device_seconds > 0:
            raise ValueError(
                f"quantum_device_seconds={self.quantum_device_seconds}: must be above 0"
            )


class ServiceDistribution:
    """Empirical distribution of the jobs' total service, in device-seconds."""

    def __init__(self, services_device_seconds: tuple[float, ...]) -> None:
        self._services = sorted(services_device_seconds)
        self._sums = [0.0, *accumulate(self._services)]

    def gittins_index(self, attained: float, quantum: float) -> float:
        """Return the probability of ending within the quantum per service expected until then.

        ``P(S - a <= q | S > a) / E[min(S - a, q) | S > a]``, 1 / device-seconds; 0 if no job of
        the sample has more service than `attained`.
        """
        first = bisect_right(self._services, attained)
        end = bisect_right(self._services, attained + quantum)
        longer = len(self._services) - end
        ending = self._sums[end] - self._sums[first] - (end - first) * attained
        expected = ending + longer * quantum
        return (end - first) / expected if expected > 0 else 0.0


class TiresiasGittinsPolicy(TiresiasPolicy):
    """`TiresiasPolicy` that serves the highest Gittins index first within a queue.

    A high index means a high probability of ending soon per unit of service until then.
    """

    def __init__(self, parameters: GittinsParameters | None = None) -> None:
        settings = parameters or GittinsParameters()
        super().__init__(settings.queues)
        self._quantum = settings.quantum_device_seconds
        self._distribution = ServiceDistribution(settings.services_device_seconds)

    def _rank(self, job: JobSnapshot, turn: Turn) -> Rank:
        attained = job.service.attained_device_seconds
        index = self._distribution.gittins_index(attained, self._quantum)
        return turn.queue, -index
