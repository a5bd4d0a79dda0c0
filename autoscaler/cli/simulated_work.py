"""What a simulation runs: a workload, and how each of its jobs goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoscaler.cli.simulate_options import SimulateOptions
from autoscaler.cli.simulated_market import SimulatedMarket
from autoscaler.cli.simulated_study import read_study
from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles import Profile, read_profiles
from autoscaler.simulator.regimes import Schedule, read_regimes
from autoscaler.simulator.simulated_study import SimulatedStudy
from autoscaler.simulator.trace import read_trace
from autoscaler.simulator.workload import Arrival, read_workload, require_applications

# So far outside of the batches that gradients were measured at, the nearest stands for it.
BATCHES_WITHIN_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """The jobs, and the profiles of their applications or the regimes of each, by its name.

    Or a study, whose trials are the jobs.
    """

    arrivals: tuple[Arrival, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    regimes: Mapping[str, Schedule] = field(default_factory=dict)
    study: SimulatedStudy | None = None

    @property
    def jobs(self) -> int:
        """How many there are."""
        return len(self.arrivals) if self.study is None else self.study.rule.trials


def read_work(
    options: SimulateOptions, market: SimulatedMarket
) -> tuple[SimulatedWork, SimulatedMarket]:
    """The work that the options name, and the market with the kinds that it was profiled on.

    Raises:
        SpecError: they name neither profiles nor regimes or both, a file can't be used, or jobs
            can't train on what there is in the market.
    """
    if options.study is not None:
        study, market = read_study(options, market)
        return SimulatedWork(study=study), market
    if options.workload is None:
        raise SpecError("say what is simulated: --workload FILE, or --study FILE")
    if (options.regimes is None) == (not options.profiles):
        message = "say how jobs go: --profiles DIR, or --regimes DIR for those of a .trace"
        raise SpecError(message)
    if options.regimes is not None:
        arrivals = read_trace(options.workload)
        _require_room(arrivals, market)
        regimes = read_regimes(options.regimes, options.workload, arrivals)
        return SimulatedWork(arrivals, regimes=regimes), market
    if options.workload.suffix == ".trace":
        message = "is of jobs with regimes: name where those are, --regimes DIR, not --profiles"
        raise SpecError(message, str(options.workload))
    profiles = read_profiles(*options.profiles)
    arrivals = read_workload(options.workload)
    require_applications(arrivals, profiles)
    _require_batches(arrivals, profiles)
    used = {arrival.application: profiles[arrival.application] for arrival in arrivals}
    return SimulatedWork(arrivals, profiles), market.as_profiled(used)


def _require_batches(arrivals: tuple[Arrival, ...], profiles: Mapping[str, Profile]) -> None:
    """What a batch far from those that were measured is worth, nobody knows."""
    for arrival in arrivals:
        profile = profiles[arrival.application]
        least, most = profile.initial_batch, profile.maximum_batch
        if not least / BATCHES_WITHIN_FACTOR <= arrival.batch_size <= most * BATCHES_WITHIN_FACTOR:
            message = (
                f"{arrival.batch_size} is far from what {arrival.application} was measured at, "
                f"{least} to {most}: at most {BATCHES_WITHIN_FACTOR:g} times beyond is answered"
            )
            raise arrival.error("batch_size", message)


def _require_room(arrivals: tuple[Arrival, ...], market: SimulatedMarket) -> None:
    """Jobs with regimes train on the devices that they request, of machines that they share."""
    if not market.is_pool:
        raise SpecError("jobs with regimes share out a pool: use --cluster", "--regimes")
    most = sum(offer.devices for offer in market.offers)
    for arrival in arrivals:
        if arrival.devices_requested > most:
            message = f"asks for {arrival.devices_requested} devices, and there are {most}"
            raise arrival.error("scale_factor", message)
