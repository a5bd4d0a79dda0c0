"""What a simulation runs: a workload, and how each of its jobs goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.cli.simulate_options import SimulateOptions
from autoscaler.cli.simulated_market import SimulatedMarket
from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles import Profile, read_profiles
from autoscaler.simulator.regimes import Schedule, read_regimes
from autoscaler.simulator.trace import read_trace
from autoscaler.simulator.workload import Arrival, read_workload, require_applications


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """The jobs, and the profiles of their applications or the regimes of each, by its name."""

    arrivals: tuple[Arrival, ...]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    regimes: Mapping[str, Schedule] = field(default_factory=dict)


def read_work(options: SimulateOptions, market: SimulatedMarket) -> SimulatedWork:
    """The work that the options name.

    Raises:
        SpecError: they name neither profiles nor regimes or both, a file can't be used, or jobs
            can't train on what there is in the market.
    """
    if (options.regimes is None) == (not options.profiles):
        message = "say how jobs go: --profiles DIR, or --regimes DIR for those of a .trace"
        raise SpecError(message)
    if options.regimes is not None:
        arrivals = read_trace(options.workload)
        _require_room(arrivals, market)
        regimes = read_regimes(options.regimes, options.workload, arrivals)
        return SimulatedWork(arrivals, regimes=regimes)
    profiles = read_profiles(*options.profiles)
    arrivals = read_workload(options.workload)
    require_applications(arrivals, profiles)
    market.require_profiles((arrival.application for arrival in arrivals), profiles)
    return SimulatedWork(arrivals, profiles)


def _require_room(arrivals: tuple[Arrival, ...], market: SimulatedMarket) -> None:
    """Jobs with regimes train on the devices that they request, of machines that they share."""
    if not market.is_pool:
        raise SpecError("jobs with regimes share out a pool: use --cluster", "--regimes")
    most = sum(offer.devices for offer in market.offers)
    for arrival in arrivals:
        if arrival.devices_requested > most:
            message = f"asks for {arrival.devices_requested} devices, and there are {most}"
            raise SpecError(message, arrival.name)
