"""The product's own path as an arm of an asynchronous study: policy `marginal`, snapshot to plan.

The snapshot is what the controller would take: one job a trial, and what the driver has told of
each. Its trials' speeds and lengths are learnt; nothing of an earlier study is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np
from search_cloud import EPOCHS, RUNGS, SearchCase, SearchTerms, SearchView, Told
from study_cases import HYPER_PARAMETERS
from study_cloud import Orders

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import (
    FreeInstance,
    JobSnapshot,
    ServiceReceived,
    Snapshot,
    StudySnapshot,
    SwitchingCosts,
    ThroughputModel,
)
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.policies.marginal.policy import MarginalPolicy

# So often, or so many times until the deadline, the plan is renewed without news.
RENEWED_SECONDS = 120.0
_RENEWALS = 60.0
_START = 1_800_000_000.0
_MOST_RECORDS = 300
_STUDY = "search"
_BATCH = BatchBounds(initial=64, maximum=64, device_maximum=64, adaptive=False)
_STEPS = ThroughputParameters(0.0, 0.01, 0.02, 0.02, 0.02, 0.02, 1.0)


@dataclass(eq=False)
class Product:
    """Policy `marginal` over a study whose trials may hold up to `most_instances` each.

    With `has_end` the driver states how many more trials are to begin; without, that there is
    no end to them, and budget over deadline says how many train at once.
    """

    case: SearchCase
    terms: SearchTerms
    most_instances: int = 1
    has_end: bool = False
    _records: dict[int, TrialRecord] = field(default_factory=dict)
    _taken: dict[int, int] = field(default_factory=dict)
    _ordered: dict[int, float] = field(default_factory=dict)
    _policy: MarginalPolicy = field(default_factory=MarginalPolicy)
    reasons: list[str] = field(default_factory=list)

    def decide_search(self, view: SearchView) -> Orders:
        """The policy's plan as orders. Fresh trials begin in the sampler's order."""
        for number, told in view.told.items():
            self._hear(number, told, view)
        most = self.case.market.most_devices // self.case.market.devices
        fresh = view.fresh[: max(most + 1 - len(view.trials), 1)]
        plan = self._policy.plan(self._snapshot(view, fresh))
        return self._orders(view, fresh, plan)

    def _orders(self, view: SearchView, fresh: Sequence[int], plan: Plan) -> Orders:
        supply = self.case.market.supply
        targets = {int(one.job): self._size(one.target) for one in plan.decisions}
        self.reasons += [f"{view.now:7.0f} s  {one.reason}" for one in plan.decisions]
        sizes: dict[int, int] = {}
        kept = len(view.free)
        for trial in view.trials:
            target = targets[trial.number]
            if target != trial.held:
                sizes[trial.number] = -1 if target is None else target
                self._ordered[trial.number] = view.now
        for number in fresh:
            target = targets[number]
            if target is None:
                break
            sizes[number] = target
            self._ordered[number] = view.now
            kept -= int(supply.instances[target])
        paid = [one.paid_seconds for one in view.free if one.paid_seconds > 0]
        renews = max(RENEWED_SECONDS, self.terms.deadline_seconds / _RENEWALS)
        keep = min(len(paid), max(kept, 0))
        return Orders(sizes, keep=keep, wake_seconds=min([renews, *paid]))

    def _size(self, target: Allocation | None) -> int | None:
        """The largest size of the market that a target holds: the product has others, too."""
        if target is None:
            return None
        return int(np.flatnonzero(self.case.market.supply.instances <= target.instances)[-1])

    def _hear(self, number: int, told: Sequence[Told], view: SearchView) -> None:
        """Take in what is new of a trial, at the time it was told."""
        for one in told[self._taken.get(number, 0) :]:
            if one.seconds > view.now:
                break
            self._taken[number] = self._taken.get(number, 0) + 1
            size, now = self.case.market.supply.sizes[one.size], _START + one.seconds
            stands = self._stands(number, one.epoch)
            record = self._records.get(number)
            if record is None:
                self._records[number] = TrialRecord.first(stands, size, now)
            else:
                self._records[number] = record.told(stands, size, now)

    def _stands(self, number: int, epoch: int) -> TrialProgress:
        rung = next((rung for rung in (*RUNGS, EPOCHS) if rung > epoch), EPOCHS)
        values = self.case.values[number, :epoch].tolist()
        features = dict(zip(HYPER_PARAMETERS, self.case.features[number].tolist(), strict=True))
        reports = tuple((float(at + 1), value) for at, value in enumerate(values))
        return TrialProgress(_name(number), float(epoch), float(rung), features, reports)

    def _snapshot(self, view: SearchView, fresh: Sequence[int]) -> Snapshot:
        alive = {one.number for one in view.trials}
        records = []
        for number, record in self._records.items():
            stands = record.stands
            ended = number not in alive
            records.append(replace(record, stands=replace(stands, has_ended=ended)))
        begins = [number for number in (*sorted(alive), *fresh) if number not in self._records]
        records += [
            TrialRecord.first(self._stands(number, 0), None, _START + view.now)
            for number in begins
        ]
        best = [value for one in records for _, value in one.stands.reports]
        terms = StudyTerms(
            Objective(
                deadline_seconds=_START + self.terms.deadline_seconds,
                budget_usd=Decimal(str(self.terms.budget_usd)),
            ),
            directions=("maximize",),
            to_begin=len(view.fresh) - len(fresh) if self.has_end else None,
            full_work=float(EPOCHS),
            best=max(best, default=None),
        )
        study = StudySnapshot(
            _STUDY,
            terms,
            tuple(records[-_MOST_RECORDS:]),
            tuple(FreeInstance("node", one.paid_seconds) for one in view.free),
            view.spent_usd,
        )
        supply = self.case.market.supply
        return Snapshot(
            now_seconds=_START + view.now,
            offers=supply.offers,
            limits=supply.limits,
            jobs=self._jobs(view, fresh),
            studies=(study,),
        )

    def _jobs(self, view: SearchView, fresh: Sequence[int]) -> tuple[JobSnapshot, ...]:
        sizes = self.case.market.supply.sizes
        jobs = []
        for one in sorted(view.trials, key=lambda one: one.number):
            held = None if one.held is None else sizes[one.held]
            is_ready = held is not None and one.ready_seconds <= 0
            before = [told.size for told in view.told[one.number] if told.seconds <= view.now]
            trained = held if is_ready else sizes[before[-1]] if before else None
            rests = view.now - one.rests_seconds
            service = ServiceReceived(changed_seconds=_START + rests if rests >= 0 else None)
            own = self._job(one.number, held, trained)
            jobs.append(replace(own, service=service, progress_examples=float(one.epoch)))
        return (*jobs, *(self._job(number, None, None) for number in fresh))

    def _job(
        self, number: int, held: Allocation | None, trained: Allocation | None
    ) -> JobSnapshot:
        market = self.case.market
        starts = market.boot_seconds + market.start_seconds
        ordered = self._ordered.get(number)
        model = ThroughputModel("t4", _STEPS, (_STEPS,))
        return JobSnapshot(
            id=_name(number),
            objective=Objective(),
            instances=InstanceBounds(1, self.most_instances),
            batch=_BATCH,
            submitted_seconds=_START + number,
            remaining_examples=None,
            spent_usd=0.0,
            held=held,
            trained=trained if held is not None else None,
            models={"t4": model},
            noise=None,
            switching=SwitchingCosts(market.pause_seconds, 0.0, {"node": starts}),
            study=_STUDY,
            ordered_seconds=None if ordered is None or held is None else _START + ordered,
        )


def _name(number: int) -> str:
    return f"{number:03d}"
