"""Successive halving under a deadline, through the whole controller, by who plans.

    CASTOR_DATA=... python benchmarks/study_controller.py [--every 6] [--arms "marginal;pollux"]

The cases, deadlines and terms of the cloud are those of `study_rungs.py`, with its oracle beside:
27 configurations, eta 3, LCBench's curves and times, measured scaling. Here nothing is told to
anybody: the controller of `castor serve`, on a virtual clock, learns speeds from what trials
report. The same trials survive whoever plans. A pool is a fixed number of instances from the
beginning to the end, the best of a sweep at each deadline. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property

import numpy as np
from data_folder import data_folder
from study_cases import (
    APPLICATIONS,
    HYPER_PARAMETERS,
    LEAST_BATCH,
    PILOTS,
    RUNG_ENDS,
    RUNG_TRIALS,
    Case,
    Market,
    Source,
    make_case,
    read_source,
)
from study_rungs import MULTIPLES, fastest_seconds
from study_water import oracle_outcome

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.curves import RecordedCurve
from autoscaler.simulator.results import Result, result_of
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.studies.searches import SynchronousHalving
from autoscaler.simulator.studies.study import BatchOfTrials, SimulatedStudy, trials_of
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.store.memory.store import memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

OURS = "marginal"
AS_JOBS = "marginal, trials as jobs"
POOLS = (2, 4, 8, 12, 16, 24, 32)
ORACLE = "water-filling, knows all (oracle)"
ARMS = (OURS, AS_JOBS, "static", "throughput", "pollux", "pool:fifo", "pool:pollux")
_ETA = 3
_LATE = 1.0005


@dataclass(frozen=True)
class Cloud:
    """What there is: offers, and limits on all of them."""

    equipment: Mapping[str, Equipment]
    limits: tuple[Limit, ...] = ()

    @property
    def offers(self) -> dict[str, Offer]:
        """By their ids."""
        return {name: each.offer for name, each in self.equipment.items()}


@dataclass(frozen=True)
class Outcome:
    """What a study came to; infinite cost where it was never in time."""

    usd: float
    seconds: float
    in_time: bool
    launches: int = 0
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Subject:
    """One case, and the study that it is for the simulator."""

    case: Case
    source: Source
    task: int
    application: str

    @cached_property
    def kind(self) -> str:
        """The kind of device that the application was measured on."""
        return next(iter(self.source.profiles[self.application].kinds))

    @cached_property
    def study(self) -> SimulatedStudy:
        """Without an objective yet."""
        curves = [self._curve(number) for number in range(RUNG_TRIALS[0])]
        profile = self.source.profiles[self.application]
        market = self.case.market
        return SimulatedStudy(
            name="study",
            trials=trials_of(curves, profile, BatchOfTrials("batch_size", LEAST_BATCH), self.kind),
            rule=SynchronousHalving(RUNG_TRIALS[0], _ETA, tuple(map(float, RUNG_ENDS))),
            instances=InstanceBounds(maximum=int(market.supply.instances.max())),
            maximize=True,
            start_seconds=market.start_seconds,
            handover_seconds=market.handover_seconds,
            features=tuple(
                dict(zip(HYPER_PARAMETERS, row.tolist(), strict=True))
                for row in self.case.features
            ),
        )

    @cached_property
    def _chosen(self) -> list[int]:
        place = APPLICATIONS.index(self.application)
        rng = np.random.default_rng([self.case.seed, self.task, place])
        count = RUNG_TRIALS[0] + PILOTS
        chosen: list[int] = rng.permutation(self.source.features.shape[0])[:count].tolist()
        return chosen

    def _curve(self, number: int) -> RecordedCurve:
        """As the case has it: what it reports at a rung is with noise."""
        place = self._chosen[number]
        values = self.source.accuracy[self.task][place].copy()
        values[[end - 1 for end in RUNG_ENDS]] = self.case.values[:, number]
        epoch_seconds = float(1.0 / self.case.rate[number, 0])
        epochs = np.arange(1.0, RUNG_ENDS[-1] + 1)
        return RecordedCurve(
            trial=str(place),
            parameters={"batch_size": f"{self.source.batch[place]:g}"},
            epochs=tuple(epochs.tolist()),
            values=tuple(values.tolist()),
            end_seconds=tuple((epoch_seconds * epochs).tolist()),
        )


class TrialsAsJobs:
    """`marginal` as it plans for jobs of which it does not know that they are of a study."""

    def __init__(self) -> None:
        self._policy = create_policy(OURS)

    def plan(self, snapshot: Snapshot) -> Plan:
        """As the policy does."""
        return self._policy.plan(replace(snapshot, studies=()))


def subjects(source: Source, market: Market, seed: int) -> list[Subject]:
    """The cases of one seed."""
    return [
        Subject(make_case(source, market, (task, name), seed), source, task, name)
        for task in range(len(source.tasks))
        for name in APPLICATIONS
    ]


def elastic(subject: Subject) -> Cloud:
    """The offer of the case, bought as it is needed."""
    supply = subject.case.market.supply
    (offer,) = supply.offers
    return Cloud({offer.id: Equipment(offer, subject.kind)}, supply.limits)


def pool(subject: Subject, size: int) -> Cloud:
    """So many instances of it, there all the time."""
    (offer,) = subject.case.market.supply.offers
    machines = [
        replace(
            offer,
            id=f"node-{number:02}",
            purchase=Purchase.RESERVED,
            usd_per_hour=Decimal(0),
            boot_seconds=0.0,
            shared=True,
        )
        for number in range(size)
    ]
    return Cloud({each.id: Equipment(each, subject.kind) for each in machines})


def run(subject: Subject, cloud: Cloud, policy: str, study: SimulatedStudy) -> Result:
    """One study under one policy."""
    clock, store = VirtualClock(), memory_store()
    settings = SimulatedSettings(
        offers=tuple(cloud.offers.values()), limits=cloud.limits, seed=subject.case.seed
    )
    planner: Policy = TrialsAsJobs() if policy == AS_JOBS else create_policy(policy)
    scenario = Scenario(
        arrivals=(),
        profiles={},
        equipment=cloud.equipment,
        objective=lambda now_seconds: Objective(),
        instances=InstanceBounds(),
        training=TrainingSettings(
            pause_seconds=subject.case.market.pause_seconds,
            step_error=0.03,
            seed=subject.case.seed,
        ),
        study=study,
    )
    simulated = SimulatedCloud(settings, clock)
    provider = SimulatedProvider(simulated, store.settings.controller_id())
    timed = TimedPolicy(planner, SystemClock())
    ran = Simulation(scenario, store, provider, timed, clock).run()
    return result_of(policy, subject.case.seed, ran, store, cloud.offers)


def bought(subject: Subject, policy: str, deadline_seconds: float) -> Outcome:
    """What a policy that buys comes to; it is told the deadline of the study, if there is one."""
    deadline = deadline_seconds if math.isfinite(deadline_seconds) else None
    objective = Objective(deadline_seconds=deadline)
    study = replace(subject.study, objective=objective)
    result = run(subject, elastic(subject), policy, study)
    assert result.study is not None
    seconds = result.study.finished_s
    return Outcome(
        usd=result.totals.cost_usd,
        seconds=seconds,
        in_time=seconds <= deadline_seconds * _LATE,
        launches=result.study.launches,
        survivors=_survivors(result),
    )


def pooled(subject: Subject, policy: str) -> list[Outcome]:
    """What each pool of the sweep comes to, in the order of their sizes."""
    market, found = subject.case.market, []
    study = replace(subject.study, start_seconds=market.handover_seconds)
    for size in POOLS:
        result = run(subject, pool(subject, size), policy, study)
        assert result.study is not None
        first_seconds = market.boot_seconds + market.start_seconds - market.handover_seconds
        seconds = first_seconds + result.study.finished_s
        usd = size * market.usd_per_device_hour * seconds / 3600
        found.append(Outcome(usd, seconds, True, size, _survivors(result)))
    return found


def best_in_time(outcomes: Sequence[Outcome], deadline_seconds: float) -> Outcome:
    """The cheapest that is done by then."""
    in_time = [one for one in outcomes if one.seconds <= deadline_seconds * _LATE]
    if not in_time:
        return Outcome(math.inf, math.inf, False)
    return min(in_time, key=lambda one: one.usd)


def oracle(subject: Subject, deadline_seconds: float) -> Outcome:
    """Water-filling that knows every speed and survivor, on `study_cloud.py`."""
    found = oracle_outcome(subject.case, deadline_seconds)
    in_time = found.seconds <= deadline_seconds * _LATE
    return Outcome(found.usd, found.seconds, in_time, found.launches)


def _survivors(result: Result) -> tuple[int, ...]:
    """Who came to the last rungs: the same whoever plans."""
    assert result.study is not None
    far = [t.number for t in result.study.trials if t.reports[-1].epochs > RUNG_ENDS[1]]
    return tuple(sorted(far))


def outcomes(
    subject: Subject, arms: Sequence[str], multiples: Sequence[float]
) -> Iterator[tuple[str, float, Outcome]]:
    """(arm, multiple, outcome) of one case."""
    fastest = fastest_seconds(subject.case)
    for arm in arms:
        swept = pooled(subject, arm.removeprefix("pool:")) if arm.startswith("pool:") else []
        once = None if swept or arm in (ORACLE, OURS) else bought(subject, arm, math.inf)
        for multiple in multiples:
            deadline = fastest * multiple
            if arm == ORACLE:
                yield arm, multiple, oracle(subject, deadline)
            elif swept:
                yield arm, multiple, best_in_time(swept, deadline)
            elif once is None:
                yield arm, multiple, bought(subject, arm, deadline)
            else:
                yield arm, multiple, replace(once, in_time=once.seconds <= deadline * _LATE)


def print_table(found: Mapping[tuple[str, float], Sequence[Outcome]]) -> None:
    """Mean cost over the oracle's, and in how many cases in time."""
    arms = list(dict.fromkeys(arm for arm, _ in found))
    multiples = sorted({multiple for _, multiple in found})
    print("| | " + " | ".join(f"{m:g} x" for m in multiples) + " |")
    print("|---|" + "---|" * len(multiples))
    for arm in arms:
        cells = []
        for multiple in multiples:
            own, best = found[arm, multiple], found[ORACLE, multiple]
            pairs = [(o, b) for o, b in zip(own, best, strict=True) if o.in_time and b.in_time]
            kept = sum(one.in_time for one in own)
            if not pairs:
                cells.append(f"- ({kept})")
                continue
            usd = np.mean([o.usd for o, _ in pairs])
            ratios = np.array([o.usd / b.usd for o, b in pairs])
            cells.append(f"${usd:.2f}, {ratios.mean():.2f} x ({kept} of {len(own)})")
        print(f"| {arm} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--every", type=int, default=1, help="Of the 20 cases every so many.")
    parser.add_argument("--arms", default=";".join(ARMS))
    parser.add_argument("--multiples", type=float, nargs="+", default=MULTIPLES)
    options = parser.parse_args()
    arms = [ORACLE, *options.arms.split(";")]
    source = read_source(data_folder("hpo and pollux/app-profiles"))
    every = subjects(source, Market(), options.seed)
    found: dict[tuple[str, float], list[Outcome]] = {}
    for subject in every[:: options.every]:
        began = time.process_time()
        survivors = set()
        for arm, multiple, outcome in outcomes(subject, arms, options.multiples):
            found.setdefault((arm, multiple), []).append(outcome)
            survivors |= {outcome.survivors} - {()}
        assert len(survivors) <= 1, survivors
        spent = time.process_time() - began
        print(f"{subject.case.name}: {spent:.0f} s", file=sys.stderr, flush=True)
    print_table(found)


if __name__ == "__main__":
    main()
