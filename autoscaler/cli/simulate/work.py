"""Jobs of a simulation: a workload with profiles or regimes, or a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoscaler.cli.simulate.market import SimulatedMarket
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.study import read_study
from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.studies.study import SimulatedStudy
from autoscaler.simulator.workloads.regimes import Schedule, read_regimes
from autoscaler.simulator.workloads.traces import read_trace
from autoscaler.simulator.workloads.workload import Arrival, read_workload, require_applications

# Beyond the measured batches by at most this factor, the nearest measured batch is used.
BATCHES_WITHIN_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """Jobs to simulate: arrivals with profiles or regimes, or the trials of a study.

    Attributes:
        arrivals: jobs of a workload in order of arrival; empty for a study.
        profiles: profiles by application; empty for rigid jobs.
        regimes: regimes of rigid jobs, by job name.
        study: study whose trials are the jobs; None for a workload.
    """

    arrivals: tuple[Arrival, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    regimes: Mapping[str, Schedule] = field(default_factory=dict)
    study: SimulatedStudy | None = None

    @property
    def jobs(self) -> int:
        """Number of jobs, or of the study's trials."""
        return len(self.arrivals) if self.study is None else self.study.rule.trials


def read_work(
    options: SimulateOptions, market: SimulatedMarket
) -> tuple[SimulatedWork, SimulatedMarket]:
    """Return the jobs that the options name, and the market with kinds of device from profiles.

    Raises:
        SpecError: the options name neither or both of profiles and regimes, a file can't be used,
            or jobs can't train on the offers of the market.
    """
    if options.study is not None:
        study, market = read_study(options, market)
        return SimulatedWork(study=study), market
    if options.workload is None:
        raise SpecError("name the jobs to simulate: --workload FILE, or --study FILE")
    if (options.regimes is None) == (not options.profiles):
        message = "name one source of speeds: --profiles DIR, or --regimes DIR for a .trace"
        raise SpecError(message)
    if options.regimes is not None:
        arrivals = read_trace(options.workload)
        _require_room(arrivals, market)
        regimes = read_regimes(options.regimes, options.workload, arrivals)
        return SimulatedWork(arrivals, regimes=regimes), market
    if options.workload.suffix == ".trace":
        message = "is a .trace, whose jobs have regimes: use --regimes DIR instead of --profiles"
        raise SpecError(message, str(options.workload))
    profiles = read_profiles(*options.profiles)
    arrivals = read_workload(options.workload)
    require_applications(arrivals, profiles)
    _require_batches(arrivals, profiles)
    used = {arrival.application: profiles[arrival.application] for arrival in arrivals}
    return SimulatedWork(arrivals, profiles), market.as_profiled(used)


def _require_batches(arrivals: tuple[Arrival, ...], profiles: Mapping[str, Profile]) -> None:
    """Check that each job's batch size is near the batches that its profile measured.

    Raises:
        SpecError: a batch is more than 2 times beyond the measured range.
    """
    for arrival in arrivals:
        profile = profiles[arrival.application]
        least, largest = profile.initial_batch, profile.maximum_batch
        if not (
            least / BATCHES_WITHIN_FACTOR <= arrival.batch_size <= largest * BATCHES_WITHIN_FACTOR
        ):
            message = (
                f"{arrival.batch_size} is too far from the measured batches of "
                f"{arrival.application}, {least} to {largest}: use a batch at most "
                f"{BATCHES_WITHIN_FACTOR:g} times beyond"
            )
            raise arrival.error("batch_size", message)


def _require_room(arrivals: tuple[Arrival, ...], market: SimulatedMarket) -> None:
    """Check that a pool can hold each job's requested devices.

    Raises:
        SpecError: the market is no pool, or a job requests more devices than the pool has.
    """
    if not market.is_pool:
        raise SpecError("jobs with regimes need a fixed pool: use --cluster", "--regimes")
    pool_devices = sum(offer.devices for offer in market.offers)
    for arrival in arrivals:
        if arrival.devices_requested > pool_devices:
            message = (
                f"requests {arrival.devices_requested} devices, but the pool has {pool_devices}"
            )
            raise arrival.error("scale_factor", message)
