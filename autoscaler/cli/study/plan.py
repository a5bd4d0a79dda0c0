"""`castor study plan`: cost and finish of a study, simulated before it costs anything."""

from __future__ import annotations

from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from autoscaler.cli.live import print_whole
from autoscaler.cli.local_cloud import market_here
from autoscaler.cli.output import print_json
from autoscaler.cli.simulate.market import SimulatedMarket
from autoscaler.cli.simulate.run import progress_bar, simulate_study
from autoscaler.cli.study.estimate import StudyEstimate, plan_words, require_feasible
from autoscaler.cli.study.records import fleet_of, name_of, view_of
from autoscaler.cli.study.run import require_optuna
from autoscaler.cli.study.search import PlannedSearch, search_of_file, steps_by_pruner
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.study import StudySpec
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.studies.drawn_trials import (
    ASSUMED_FACTOR,
    Pace,
    drawn_curves,
    measured_doubling,
    speedups,
)
from autoscaler.simulator.studies.forecast import (
    best_pool,
    is_allowed,
    is_whole,
    outlook,
    pools,
    rung_outlooks,
)
from autoscaler.simulator.studies.results import StudyResult
from autoscaler.simulator.studies.static_pools import PoolRun, StaticPool
from autoscaler.simulator.studies.study import (
    BatchOfTrials,
    SimulatedStudy,
    application_of,
    trials_of,
)
from autoscaler.spec.quantities import format_duration, format_money
from autoscaler.spec.study_file import load_study
from autoscaler.supervision import cores_here
from autoscaler.wire.study_messages import StudyView

_STEPS = 27
_STEP_SECONDS = 40.0
_FEW = 3
# Speed-up of a distributed trial by twice the devices, where none was measured.
_DOUBLING = 1.8
_START_SECONDS, _HANDOVER_SECONDS = 10.0, 1.0
# Without --runs: at most `_RUNS`; after `_BEGIN_SECONDS` only the first `_LEAST_RUNS` begin.
_RUNS, _LEAST_RUNS, _BEGIN_SECONDS = 10, 3, 15.0


@dataclass(frozen=True, slots=True)
class StudyPlanOptions:
    """Options of `castor study plan`; None: from the file, earlier trials or a default."""

    file: Path
    trials: int | None = None
    steps: int | None = None
    step_seconds: float | None = None
    runs: int | None = None


@dataclass(frozen=True, slots=True)
class _Market:
    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    source: str

    def simulated(self) -> SimulatedMarket:
        """Return the market as simulations use it."""
        equipment = {offer.id: Equipment(offer, offer.device_kind) for offer in self.offers}
        return SimulatedMarket(equipment, self.limits)


def print_plan(options: StudyPlanOptions, as_json: bool) -> None:
    """Print the simulated cost and finish of a study file.

    Raises:
        SpecError: as `plan_study`, or no plan keeps to its deadline or budget.
    """
    require_optuna()
    plan = plan_study(options, SystemClock().now())
    if as_json:
        print_json(StudyEstimate, plan)
    else:
        print_whole(plan_words(plan))
    require_feasible(plan)


def plan_study(
    options: StudyPlanOptions, now_seconds: float, is_shown: bool = True
) -> StudyEstimate:
    """Simulate the study of a file a few times, with a progress bar on standard error.

    Raises:
        SpecError: the file or an option can't be used.
        Unavailable: the controller that CASTOR_URL names does not answer.
    """
    spec, bounds = _study(options, now_seconds)
    market = _market(spec, bounds, now_seconds)
    known = view_of(spec.name, require_optuna().recorded_names(spec))
    trials, steps, steps_words = _size(options, spec, known)
    search = search_of_file(spec, trials, steps)
    pace, pace_words = _pace(options, spec, known)
    doubling = _measured_doubling(known) if spec.job.distributed else None
    base = _Base(spec, bounds, search, steps, pace, market, doubling)
    is_guess = options.step_seconds is None and not pace.measured
    if not is_guess:
        base.require_one_trial()
    results = _simulated(base, options.runs, is_shown)
    studies = [base.study(seed) for seed in range(len(results))]
    runs = [PoolRun(result.finished_s, result.cost_usd) for result in results]
    whole = [is_whole(result) for result in results]
    return StudyEstimate(
        study=spec.name,
        trials=trials,
        steps=steps,
        pruner=search.pruner,
        objective=studies[0].objective,
        runs=len(results),
        rungs=rung_outlooks(results, search.rungs),
        elastic=outlook(runs, studies[0].objective, whole),
        static=best_pool(studies, base.pools(trials), base.cheapest_usd_per_hour),
        stopped=1.0 - sum(whole) / len(whole),
        source=market.source,
        assumed=(*steps_words, pace_words, *search.remarks, *base.assumed),
        is_guess=is_guess,
    )


@dataclass(frozen=True, slots=True)
class _Base:
    """Inputs that all runs share."""

    spec: StudySpec
    bounds: InstanceBounds
    search: PlannedSearch
    steps: int
    pace: Pace
    market: _Market
    measured_doubling: float | None = None

    @property
    def speedup(self) -> dict[int, float]:
        """Speed of a trial relative to one device, by number of devices."""
        most = max(offer.devices * self.bounds.most_of(offer) for offer in self.market.offers)
        return speedups(most, self.doubling)

    @property
    def doubling(self) -> float:
        """Speed-up of a trial by twice the devices."""
        assumed = _DOUBLING if self.is_distributed else 1.0
        return self.measured_doubling or assumed

    @property
    def is_distributed(self) -> bool:
        """Whether trials use more than one device."""
        return self.spec.job.distributed

    @property
    def cheapest_usd_per_hour(self) -> float:
        """Price of the cheapest offer that can run one trial."""
        return min(float(offer.usd_per_hour) for offer in self.market.offers)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Assumptions that no measurement supports, in words."""
        words = "each trial uses one device"
        if self.is_distributed:
            words = f"twice the devices make a trial {self.doubling:.2g} times as fast"
            if self.measured_doubling is not None:
                words = f"{words}, as with earlier trials"
        return (
            f"{words}; all kinds of device are equally fast",
            f"a trial takes {_START_SECONDS:g} s to start on a new instance, "
            f"{_HANDOVER_SECONDS:g} s on one that it takes over, and gives its instance back "
            "while it waits for other trials",
            "no other job runs on the controller, and its policy is marginal",
        )

    def require_one_trial(self) -> None:
        """Check that the budget pays for one whole trial of median pace on the cheapest offer.

        Raises:
            SpecError: the budget is too small.
        """
        seconds = {
            offer: offer.boot_seconds
            + _START_SECONDS
            + self.steps * self.pace.step_seconds / times
            for offer in self.market.offers
            for times in (_at(self.speedup, offer.devices),)
        }
        usd, offer = min(
            (took * offer.usd_per_second, offer.id) for offer, took in seconds.items()
        )
        budget = self.spec.objective.budget_usd
        if budget is not None and usd > budget:
            raise SpecError(
                f"{format_money(budget)} can't pay one trial: on {offer} a trial costs about "
                f"{format_money(round(usd, 4))}",
                "objective.budget",
            )

    def study(self, seed: int) -> SimulatedStudy:
        """Return one draw of the study."""
        trials, rule = self.search.rule.trials, self.search.rule
        curves = drawn_curves(trials, self.steps, self.search.rungs, self.pace, seed)
        kinds = sorted({offer.device_kind for offer in self.market.offers})
        application = application_of("trial", self.speedup, kinds)
        return SimulatedStudy(
            name=name_of(self.spec.name),
            trials=trials_of(curves, application, BatchOfTrials(), kinds[0]),
            rule=rule,
            objective=self.spec.objective,
            job_objective=self.spec.job.objective,
            instances=self.bounds,
            start_seconds=_START_SECONDS,
            handover_seconds=_HANDOVER_SECONDS,
        )

    def pools(self, trials: int) -> list[StaticPool]:
        """Return the fixed pools that the study may hold, with the speed of a trial on each."""
        speedup = self.speedup
        sizes = pools(self.market.offers, self.market.limits, self.bounds, trials)
        return [StaticPool(offer, size, _at(speedup, offer.devices)) for offer, size in sizes]


def _at(speedup: dict[int, float], devices: int) -> float:
    return speedup[max(known for known in speedup if known <= devices)]


def _study(options: StudyPlanOptions, now_seconds: float) -> tuple[StudySpec, InstanceBounds]:
    """Return the file's study as a driver would run it, its deadline counted from now."""
    from hpo.objective.distributed import trial_job
    from hpo.study_file.catch import resolve_caught_errors
    from hpo.study_file.study_opening import check_methods, load_objective

    spec, directory = load_study(options.file, now_seconds)
    check_methods(spec)
    job = trial_job(load_objective(spec, directory), spec.job)
    resolve_caught_errors(spec.catch)
    deadline = spec.objective.deadline_seconds
    left = None if deadline is None else deadline - now_seconds
    objective = replace(spec.objective, deadline_seconds=left)
    of_job = replace(job.objective, deadline_seconds=None, budget_usd=None)
    spec = replace(spec, objective=objective, job=replace(job, objective=of_job))
    return spec, job.instances


def _market(spec: StudySpec, bounds: InstanceBounds, now_seconds: float) -> _Market:
    """Return the offers for trials, and the limits on them, as of now."""
    fleet = fleet_of(spec.name)
    if fleet is None:
        offers, limits = market_here()
        source = "the cores of this machine"
    else:
        offers, limits, source = fleet.offers, fleet.limits, "what the controller offers"
        offers = tuple(offer for offer in offers if offer.id not in fleet.unavailable)
    allowed = tuple(
        replace(offer, until_seconds=None if until is None else until - now_seconds)
        for offer in offers
        for until in (offer.until_seconds,)
        if is_allowed(offer, bounds)
    )
    if not allowed:
        names = (*(bounds.offers or ()), *map(str, bounds.gpus or ()))
        named = ", ".join(names) or "on-demand offers"
        known = ", ".join(offer.id for offer in offers) or "none"
        raise SpecError(f"{named}: not offered; offers are {known}", "job.instances.offers")
    return _Market(allowed, limits, source)


def _size(
    options: StudyPlanOptions, spec: StudySpec, known: StudyView | None
) -> tuple[int, int, tuple[str, ...]]:
    """Return the numbers of trials and of steps of an unpruned trial, and remarks on these."""
    from hpo.study_file.study_opening import trials_left

    trials = options.trials or trials_left(spec)
    if trials is None:
        raise SpecError("the file sets no number of trials: give --trials", "trials")
    if trials == 0:
        raise SpecError(
            f"all {spec.trials} have ended: raise the number, or give --trials", "trials"
        )
    steps = options.steps or steps_by_pruner(spec)
    if steps is not None:
        return trials, steps, ()
    if known is not None and known.terms is not None and known.terms.full_work is not None:
        steps = round(known.terms.full_work)
        return trials, steps, (f"{steps} steps a trial, as in earlier trials",)
    return trials, _STEPS, (f"{_STEPS} steps a trial: change with --steps",)


def _pace(options: StudyPlanOptions, spec: StudySpec, known: StudyView | None) -> tuple[Pace, str]:
    """Return the pace of trials, as given, measured or assumed, and a remark on it."""
    measured = () if options.step_seconds is not None else _measured(known, spec.job.distributed)
    if measured:
        words = f"trials are as fast as {len(measured)} earlier ones"
        return Pace(sorted(measured)[len(measured) // 2], measured), words
    seconds = options.step_seconds or _STEP_SECONDS
    hint = "" if options.step_seconds else ": change with --step-seconds"
    words = (
        f"a step takes {format_duration(seconds)} on one device, 9 trials in 10 within a factor "
        f"of {ASSUMED_FACTOR:g}{hint}"
    )
    return Pace(seconds), words


def _measured_doubling(known: StudyView | None) -> float | None:
    rates = [
        {speed.size.devices: speed.work / speed.seconds for speed in record.speeds if speed.work}
        for record in (() if known is None else known.trials)
    ]
    return measured_doubling(rates)


def _measured(known: StudyView | None, is_distributed: bool) -> tuple[float, ...]:
    """Return the seconds of a step on one device of earlier trials.

    Each trial counts by the fewest devices on which it was measured. Measurements that include a
    start are left out if at least `_FEW` do not.
    """
    doubling = (_measured_doubling(known) or _DOUBLING) if is_distributed else 1.0
    paces: list[tuple[bool, float]] = []
    for record in () if known is None else known.trials:
        speeds = [speed for speed in record.speeds if speed.work > 0]
        if speeds:
            least = min(speeds, key=lambda speed: (speed.has_start, speed.size.devices))
            devices = least.size.devices
            times = speedups(devices, doubling)[devices]
            paces.append((least.has_start, times * least.seconds / least.work))
    clean = [seconds for has_start, seconds in paces if not has_start]
    return tuple(clean if len(clean) >= _FEW else (seconds for _, seconds in paces))


def _simulated(base: _Base, runs: int | None, is_shown: bool) -> list[StudyResult]:
    """Return the results of the first `runs` seeds; None: as many as begin in time."""
    most, clock = runs or _RUNS, SystemClock()
    begin_until = clock.monotonic() + (_BEGIN_SECONDS if runs is None else float("inf"))
    results: dict[int, StudyResult] = {}
    with _workers(most) as workers, progress_bar(is_shown) as progress:
        task = progress.add_task("runs of the study", total=most)
        under_way: dict[Future[StudyResult], int] = {}
        seeds = iter(range(most))
        while True:
            is_early = (
                clock.monotonic() < begin_until or len(results) + len(under_way) < _LEAST_RUNS
            )
            while is_early and len(under_way) < _cores(most) and (seed := next(seeds, -1)) >= 0:
                under_way[workers.submit(_run, base, seed)] = seed
            if not under_way:
                return [results[seed] for seed in sorted(results)]
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                results[under_way.pop(future)] = future.result()
                progress.advance(task)


def _workers(runs: int) -> Executor:
    """Return an executor: a thread where one core or one run needs no further process."""
    if _cores(runs) == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(_cores(runs), mp_context=get_context("spawn"))


def _cores(runs: int) -> int:
    return min(len(cores_here()), runs)


def _run(base: _Base, seed: int) -> StudyResult:
    result = simulate_study(base.study(seed), base.market.simulated(), seed).study
    assert result is not None
    return result
