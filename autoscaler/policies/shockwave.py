"""Shockwave: a market whose prices know that jobs change. Rigid jobs on a fixed pool.

Source: Zheng et al., Shockwave: fair and efficient cluster scheduling for dynamic adaptation in
machine learning (NSDI'23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.errors import SolverError
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.wording import duration, number
from autoscaler.policies.alone import Alone, alone, contention
from autoscaler.policies.pool import Grant, Pool, by_submission, gangs, plan_of, pool_of, requested
from autoscaler.policies.shockwave_forecast import Forecast, forecast
from autoscaler.policies.shockwave_window import Bidder, Window, concave, log_utility, rounds_of


@dataclass(frozen=True, slots=True)
class ShockwaveParameters:
    """The window and what it weighs.

    Attributes:
        rounds: of the window, each as long as the time between plans.
        makespan_weight: k, what the end of all jobs matters beside the rest, from 0 to 1.
        unfairness_weight: what a finish-time ratio above the fair one by 1 costs a job, in units
            of its utility, which is a logarithm of progress.
        fair_ratio: the finish-time ratio (rho) that is fair.
        utility_points: progress between which the logarithm is taken to be straight.
        least_progress: whose logarithm is the utility of none.
        most_seconds: after which the solver gives up.

    The rounds, the points and the fair ratio are those of the published configurations; k there is
    in seconds of makespan, from 1e-3 to 1e5 by the size of the pool.

    Raises:
        ValueError: one is outside of its range.
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
class _Standing:
    """What is known of a job: what is to come, how it stands, and what is fair from now on."""

    job: JobSnapshot
    forecast: Forecast
    alone: Alone
    contention: float

    @property
    def ratio(self) -> float:
        """Of its finish to the fair one, if it gets a fair share from now on."""
        return self.alone.finish_time_ratio(self.contention)


class ShockwavePolicy:
    """In every round the window that lies ahead is planned anew, and its first round is run.

    Utility is the logarithm of progress, which the forecast of the job's regimes gives for each
    number of rounds, less what a finish after the fair one costs. The artifact demands fair
    finishes and, where those can't be had, starts again with the utilities of jobs that are behind
    times rho to a power of 5 to 15. One program with a price on what is late needs no second one,
    and is fairer: it lets a few be late where the power makes all equally so
    (docs/results.md has both).

    Who runs in the first round: those whom the window gives all of its rounds, then those who run
    already, so that a job's rounds come together, then whoever has the largest finish-time ratio.
    What is left goes to whoever has longest left (work conservation). The artifact keeps a plan
    for up to eight rounds; here a plan is of the snapshot alone. A simulation tells which regimes
    jobs have, though not how long those last.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True

    def __init__(self, parameters: ShockwaveParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        crowd = contention(len(snapshot.jobs), pool)
        standings = [_standing(job, snapshot, pool, crowd) for job in by_submission(snapshot.jobs)]
        rounds, notes = self._rounds(standings, snapshot.replan_seconds, pool)
        queue = _queue(standings, rounds, self._parameters.rounds)
        jobs = [each.job for each in queue]
        sizes = gangs(jobs, pool, pool.available)
        grants = {
            each.job.id: Grant(
                sizes[each.job.id],
                _why(each, rounds[each.job.id], self._parameters.rounds, sizes, pool),
            )
            for each in queue
        }
        return replace(plan_of(snapshot, pool, jobs, grants), notes=notes)

    def _rounds(
        self, standings: Sequence[_Standing], round_seconds: float, pool: Pool
    ) -> tuple[Mapping[str, int], tuple[str, ...]]:
        """Of the window, by job; where the solver fails everybody wants one."""
        parameters = self._parameters
        window = Window(
            parameters.rounds, pool.available, parameters.makespan_weight, parameters.most_seconds
        )
        bidders = [self._bidder(each, round_seconds, pool) for each in standings]
        ids = [each.job.id for each in standings]
        try:
            return dict(zip(ids, rounds_of(bidders, window), strict=True)), ()
        except SolverError as error:
            return dict.fromkeys(ids, 1), (f"all jobs are given a turn in order: {error}",)

    def _bidder(self, standing: _Standing, round_seconds: float, pool: Pool) -> Bidder:
        rounds = range(self._parameters.rounds + 1)
        utilities = [self._utility(standing, number, round_seconds) for number in rounds]
        return Bidder(
            devices=requested(standing.job, pool),
            utilities=concave(utilities),
            left_rounds=standing.forecast.left_seconds / round_seconds,
        )

    def _utility(self, standing: _Standing, rounds: int, round_seconds: float) -> float:
        """Of so many rounds of the window.

        After the window a job has its fair share; what ends in it is taken to end at once.
        """
        parameters, own = self._parameters, standing.alone
        run_seconds = rounds * round_seconds
        left_seconds = own.left_seconds - run_seconds
        after_seconds = (
            parameters.rounds * round_seconds + standing.contention * left_seconds
            if left_seconds > 0
            else own.left_seconds
        )
        late = max(own.ratio_of_finish(after_seconds) - parameters.fair_ratio, 0.0)
        progress = standing.forecast.progress_after(run_seconds)
        utility = log_utility(progress, parameters.utility_points, parameters.least_progress)
        return utility - parameters.unfairness_weight * late


def _standing(job: JobSnapshot, snapshot: Snapshot, pool: Pool, crowd: float) -> _Standing:
    # By the usual kind, not the one it holds: or a job would be planned anew where it has come to.
    expected = forecast(replace(job, placement=None), pool)
    return _Standing(job, expected, alone(job, pool, snapshot, expected.left_seconds), crowd)


def _queue(
    standings: Sequence[_Standing], rounds: Mapping[str, int], window: int
) -> list[_Standing]:
    """Who is served first; those without a round of the window come last."""

    def turn(each: _Standing) -> tuple[float, ...]:
        own = rounds[each.job.id]
        if own == 0:
            return 2.0, -each.forecast.left_seconds
        return float(own < window), float(each.job.placement is None), -each.ratio, -own

    return sorted(standings, key=turn)


def _why(own: _Standing, rounds: int, window: int, sizes: Mapping[str, int], pool: Pool) -> str:
    standing = (
        f"{rounds} of the next {window} rounds, finish-time ratio {number(own.ratio)}, "
        f"{duration(own.forecast.left_seconds)} left"
    )
    if sizes[own.job.id] > 0:
        return standing
    return f"{standing}; {requested(own.job, pool)} of {pool.devices} devices not left in this one"
