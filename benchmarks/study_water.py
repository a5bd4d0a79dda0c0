"""Arms that fill to the barrier: with the true speeds and survivors, and with what is learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from study_cases import (
    HYPER_PARAMETERS,
    MEDIAN_SECONDS,
    PILOTS,
    RUNG_ENDS,
    RUNG_TRIALS,
    Array,
    Case,
)
from study_cloud import Orders, Outcome, StudyCloud, View

from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rungs.rung import FutureRung, Rung, SurvivorDraws, future_rungs
from autoscaler.economics.studies.rungs.rung_plan import plan_rung
from autoscaler.economics.studies.speeds.trial_speeds import median_where_unmeasured
from autoscaler.economics.studies.study_plan import StudyPlan, TrialAction
from autoscaler.economics.studies.trial_state import FreedInstances, TrialState
from autoscaler.goodput.sibling_speeds import (
    SiblingPrior,
    Siblings,
    SpeedMeasurements,
    StudySizes,
    hyper_parameter_features,
    sibling_speeds,
)

_ALREADY = 1.0
_SEEDS = 1000
# Shares of the time left that the oracle may keep in reserve; the cheapest in time counts.
_ORACLE_RESERVES = (0.0, 0.02, 0.05, 0.08)


class Knowledge(Protocol):
    """What an arm knows of speeds, (K, N, A), and of later rungs."""

    def rates(self, view: View) -> Array:
        """Units a second of all trials of the study in each draw."""
        ...

    def known(self, view: View) -> frozenset[int]:
        """Trials whose own speed is known."""
        ...

    def future(self, view: View, rates: Array) -> tuple[FutureRung, ...]:
        """The rungs to come."""
        ...


@dataclass(frozen=True, eq=False)
class Truth:
    """Everything: the oracle."""

    case: Case

    def rates(self, view: View) -> Array:
        """One draw, the true one."""
        return self.case.rate[None]

    def known(self, view: View) -> frozenset[int]:
        """All."""
        return frozenset(range(len(self.case.rate)))

    def future(self, view: View, rates: Array) -> tuple[FutureRung, ...]:
        """Those who will be there."""
        return tuple(
            FutureRung(
                np.full((1, RUNG_TRIALS[rung]), self.case.work[rung]),
                rates[:, list(self.case.survivors[rung])],
            )
            for rung in range(view.rung + 1, len(RUNG_TRIALS))
        )


@dataclass(frozen=True, eq=False)
class Learnt:
    """What was measured of trials so far, and of `pilots` trials of an earlier study."""

    case: Case
    pilots: int = PILOTS
    draws: int = 27
    prior: SiblingPrior = SiblingPrior()  # noqa: RUF009
    _cache: dict[frozenset[tuple[int, int]], Array] = field(default_factory=dict)

    def rates(self, view: View) -> Array:
        """Draws from what siblings tell."""
        if view.measured not in self._cache:
            self._cache.clear()
            self._cache[view.measured] = self._rates(view.measured)
        return self._cache[view.measured]

    def known(self, view: View) -> frozenset[int]:
        """Those that were measured."""
        return frozenset(trial for trial, _ in view.measured)

    def future(self, view: View, rates: Array) -> tuple[FutureRung, ...]:
        """Any of those in the race; after a barrier the better the likelier."""
        alive = list(self.case.survivors[view.rung])
        # Survivors stand in the order of what they reported at the barrier.
        places = np.arange(len(alive), dtype=np.float64) * bool(view.rung)
        weights = np.asarray(1.0 / (1.0 + places), np.float64)
        return future_rungs(
            rates[:, alive],
            RUNG_TRIALS[view.rung + 1 :],
            self.case.work[view.rung + 1 :],
            SurvivorDraws(weights, seed=view.rung),
        )

    def _rates(self, measured: frozenset[tuple[int, int]]) -> Array:
        case = self.case
        known = sorted(measured)
        trial = [t for t, _ in known]
        size = [s for _, s in known]
        rate = [math.log(case.rate[t, s]) + case.noise[t, s] for t, s in known]
        for pilot, measured_rate in enumerate(case.pilots[: self.pilots]):
            possible = np.flatnonzero(measured_rate > 0).tolist()
            trial += [len(case.rate) + pilot] * len(possible)
            size += possible
            rate += np.log(measured_rate[possible]).tolist()
        every = np.vstack([case.features, case.pilot_features[: self.pilots]])
        devices = np.array([float(one.devices) for one in case.market.supply.sizes])
        draws = sibling_speeds(
            Siblings(
                hyper_parameter_features(every),
                every[:, HYPER_PARAMETERS.index("batch_size")],
                [case.seed * _SEEDS + number for number in range(len(every))],
            ),
            StudySizes(devices, np.zeros(len(devices), dtype=np.int64)),
            SpeedMeasurements(
                np.array(trial, dtype=np.int64), np.array(size, dtype=np.int64), np.array(rate)
            ),
            math.log(RUNG_ENDS[-1] / MEDIAN_SECONDS),
            self.draws,
            self.prior,
        )
        return draws[:, : len(case.rate)]


@dataclass(eq=False)
class WaterArm:
    """Plans anew at every event."""

    case: Case
    knowledge: Knowledge
    deadline_seconds: float
    reserve: float = 0.0
    plans: list[StudyPlan] = field(default_factory=list)

    def decide(self, view: View) -> Orders:
        """The plan of the product, as orders."""
        supply = self.case.market.supply
        known = self.knowledge.known(view)
        is_known = np.isin(np.arange(len(self.case.rate)), list(known))
        rates = median_where_unmeasured(self.knowledge.rates(view), is_known)
        trials = tuple(
            TrialState(
                str(t.trial),
                t.work,
                rates[:, t.trial],
                t.held,
                t.ready_seconds,
                t.paid_seconds,
                t.trial in known,
            )
            for t in view.trials
        )
        freed = tuple(
            FreedInstances("node", 1, one.paid_seconds, one.ready_seconds) for one in view.free
        )
        rung = Rung(trials, freed, self.knowledge.future(view, rates))
        constraints = StudyConstraints(
            deadline_seconds=max(self.deadline_seconds - view.now, _ALREADY)
        )
        plan = plan_rung(rung, supply, constraints, self.reserve)
        self.plans.append(plan)
        sizes = {
            int(one.trial): supply.sizes.index(one.target)
            for one in plan.decisions
            if one.target is not None
        }
        sizes |= {int(one.trial): -1 for one in plan.decisions if one.action is TrialAction.PAUSE}
        standby = plan.standby
        if standby is None:
            return Orders(sizes)
        paid = min((one.paid_seconds for one in view.free if one.paid_seconds), default=math.inf)
        return Orders(sizes, standby.keep, wake_seconds=paid)


def oracle_outcome(case: Case, deadline_seconds: float) -> Outcome:
    """Return the cheapest outcome of the oracle in time, else the earliest one.

    A plan is a heuristic even where every speed is known: a study that is planned to end just in
    time may end late, so that some cases need a reserve.
    """
    outcomes = [
        StudyCloud(case, WaterArm(case, Truth(case), deadline_seconds, reserve)).run()
        for reserve in _ORACLE_RESERVES
    ]
    in_time = [outcome for outcome in outcomes if outcome.seconds <= deadline_seconds]
    if in_time:
        return min(in_time, key=lambda outcome: outcome.usd)
    return min(outcomes, key=lambda outcome: outcome.seconds)
