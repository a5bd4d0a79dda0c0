"""Shockwave: a market for rounds that forecasts changes of jobs. Rigid jobs on a fixed pool.

Source: Zheng et al., Shockwave: fair and efficient cluster scheduling for dynamic adaptation in
machine learning (NSDI'23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.errors import SolverError
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import duration, number
from autoscaler.policies.pools.pool import (
    Grant,
    Pool,
    by_submission,
    gangs,
    plan_of,
    pool_of,
    requested,
)
from autoscaler.policies.published.alone import Alone, alone, contention
from autoscaler.policies.published.shockwave_forecast import RuntimeForecast, forecast
from autoscaler.policies.published.shockwave_window import (
    Bidder,
    Window,
    concave,
    log_utility,
    rounds_of,
)


@dataclass(frozen=True, slots=True)
class ShockwaveParameters:
    """Window of rounds, and the weights of its objective.

    Attributes:
        rounds: rounds of the window, each as long as the time between plans.
        makespan_weight: k, weight of the makespan in the objective, from 0 to 1.
        unfairness_weight: loss of utility per unit of finish-time ratio above the fair one.
            Utility is a logarithm of progress.
        fair_ratio: finish-time ratio (rho) that counts as fair.
        utility_points: points of progress between which the logarithm is interpolated linearly.
        least_progress: progress whose logarithm is the utility of no progress.
        most_seconds: time limit of the solver.

    Rounds, points and fair ratio are those of the published configurations. There k is in seconds
    of makespan, from 1e-3 to 1e5 by the size of the pool.

    Raises:
        ValueError: a parameter is outside of its range.
    """

    rounds: int = 20
    makespan_weight: float = 0.35
    unfairness_weight: float = 30.0
    fair_ratio: float = 1.0
    utility_points: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    least_progress: float = 1e-6
    most_seconds: float = 15.0

    def __post_init__(self) -> None:
        points = self.utility_points
        if self.rounds < 1:
            raise ValueError(f"rounds={self.rounds}: must be 1 or more")
        if not 0 <= self.makespan_weight <= 1:
            raise ValueError(f"makespan_weight={self.makespan_weight}: must be from 0 to 1")
        if not self.unfairness_weight >= 0:
            raise ValueError(f"unfairness_weight={self.unfairness_weight}: must be 0 or more")
        if not self.least_progress > 0:
            raise ValueError(f"least_progress={self.least_progress}: must be above 0")
        if len(points) < 2 or list(points) != sorted({*points, 0.0, 1.0}):
            raise ValueError(f"utility_points={points}: must ascend from 0 to 1")


_DEFAULTS = ShockwaveParameters()


@dataclass(frozen=True, slots=True)
class _JobState:
    """Forecast and times of a job, with the contention from now on."""

    job: JobSnapshot
    forecast: RuntimeForecast
    alone: Alone
    contention: float

    @property
    def ratio(self) -> float:
        """Finish-time ratio if the job gets a fair share from now on."""
        return self.alone.finish_time_ratio(self.contention)


class ShockwavePolicy:
    """Each plan optimises the window of the next rounds and runs its first round.

    The utility of a number of rounds is the logarithm of the progress that the job's regimes
    forecast, less a penalty for a finish after the fair one. The artifact requires fair finishes;
    if there are none, it solves again with the utilities of late jobs times rho to a power of 5 to
    15. The penalty needs one program only. It is fairer too: it makes a few jobs late where the
    power makes all equally late (docs/results-schedulers.md compares both).

    The first round runs jobs that get all rounds of the window, then running jobs, so that a job's
    rounds are consecutive, then jobs by finish-time ratio, largest first. Remaining devices go to
    jobs with the longest time left (work conservation). The artifact keeps a plan for up to eight
    rounds; here a plan depends on the snapshot alone. A simulation supplies the regimes of jobs,
    but not their lengths.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True

    def __init__(self, parameters: ShockwaveParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs_per_device = contention(len(snapshot.jobs), pool)
        states = [
            _job_state(job, snapshot, pool, jobs_per_device)
            for job in by_submission(snapshot.jobs)
        ]
        rounds, notes = self._rounds_by_job(states, snapshot.replan_seconds, pool)
        queue = _service_order(states, rounds, self._parameters.rounds)
        jobs = [state.job for state in queue]
        sizes = gangs(jobs, pool, pool.available)
        grants = {
            state.job.id: Grant(
                sizes[state.job.id],
                _reason(state, rounds[state.job.id], self._parameters.rounds, sizes, pool),
            )
            for state in queue
        }
        return replace(plan_of(snapshot, pool, jobs, grants), notes=notes)

    def _rounds_by_job(
        self, states: Sequence[_JobState], round_seconds: float, pool: Pool
    ) -> tuple[Mapping[str, int], tuple[str, ...]]:
        """Return the rounds of the window by job id, and notes; 1 for all if the solver fails."""
        parameters = self._parameters
        window = Window(
            parameters.rounds, pool.available, parameters.makespan_weight, parameters.most_seconds
        )
        bidders = [self._bidder(state, round_seconds, pool) for state in states]
        ids = [state.job.id for state in states]
        try:
            return dict(zip(ids, rounds_of(bidders, window), strict=True)), ()
        except SolverError as error:
            return dict.fromkeys(ids, 1), (f"each job gets one round in turn: {error}",)

    def _bidder(self, state: _JobState, round_seconds: float, pool: Pool) -> Bidder:
        """Return the job's devices, utilities and rounds left."""
        rounds = range(self._parameters.rounds + 1)
        utilities = [self._utility(state, round_count, round_seconds) for round_count in rounds]
        return Bidder(
            devices=requested(state.job, pool),
            utilities=concave(utilities),
            left_rounds=state.forecast.left_seconds / round_seconds,
        )

    def _utility(self, state: _JobState, rounds: int, round_seconds: float) -> float:
        """Return the utility of so many rounds of the window.

        After the window the job gets its fair share. A job that ends in the window counts as
        ending at once.
        """
        parameters, times = self._parameters, state.alone
        run_seconds = rounds * round_seconds
        left_seconds = times.left_seconds - run_seconds
        after_seconds = (
            parameters.rounds * round_seconds + state.contention * left_seconds
            if left_seconds > 0
            else times.left_seconds
        )
        lateness = max(times.ratio_of_finish(after_seconds) - parameters.fair_ratio, 0.0)
        progress = state.forecast.progress_after(run_seconds)
        utility = log_utility(progress, parameters.utility_points, parameters.least_progress)
        return utility - parameters.unfairness_weight * lateness


def _job_state(
    job: JobSnapshot, snapshot: Snapshot, pool: Pool, jobs_per_device: float
) -> _JobState:
    # The forecast ignores the present kind of device, so that a move does not change the plan.
    """Return the forecast and times of a job."""
    job_forecast = forecast(replace(job, placement=None), pool)
    return _JobState(
        job, job_forecast, alone(job, pool, snapshot, job_forecast.left_seconds), jobs_per_device
    )


def _service_order(
    states: Sequence[_JobState], rounds: Mapping[str, int], window: int
) -> list[_JobState]:
    """Return the jobs in the order of service; those without a round of the window are last."""

    def turn(state: _JobState) -> tuple[float, ...]:
        job_rounds = rounds[state.job.id]
        if job_rounds == 0:
            return 2.0, -state.forecast.left_seconds
        return (
            float(job_rounds < window),
            float(state.job.placement is None),
            -state.ratio,
            -job_rounds,
        )

    return sorted(states, key=turn)


def _reason(
    state: _JobState, rounds: int, window: int, sizes: Mapping[str, int], pool: Pool
) -> str:
    summary = (
        f"{rounds} of the next {window} rounds, finish-time ratio {number(state.ratio)}, "
        f"{duration(state.forecast.left_seconds)} left"
    )
    if sizes[state.job.id] > 0:
        return summary
    return f"{summary}; {requested(state.job, pool)} of {pool.devices} devices go to other jobs"
