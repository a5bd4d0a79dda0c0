"""Predictions for submitted jobs as messages of the API."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.clock import Clock
from autoscaler.controller.predict.live_jobs import LiveCurve, LiveJobs
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.domain.job import InstanceBounds, JobRecord
from autoscaler.domain.job_rules import require_valid_bounds, require_valid_objective
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.restart_rules import require_restartable_bounds
from autoscaler.economics.forecasts.curves import CurvePoint
from autoscaler.economics.forecasts.forecast import Range
from autoscaler.economics.forecasts.outlook import JobOutlook, NoOutlook
from autoscaler.ledger.ledger import Ledger
from autoscaler.service.jobs.views import decision_at, decision_view
from autoscaler.store.store import Store
from autoscaler.wire.messages import JobView
from autoscaler.wire.outlook_messages import (
    ChangePlan,
    CurvePointView,
    CurveView,
    Hypothesis,
    MeasuredSizeView,
    OfferCurveView,
    OutlookView,
    PlannedSizeView,
    QuantilesView,
    WhatIfView,
)

_MILLION = 1e6


class Outlooks:
    """Builder of the messages about a job's future."""

    def __init__(self, store: Store, live: LiveJobs, clock: Clock) -> None:
        self._store = store
        self._live = live
        self._clock = clock

    def curve(self, job: JobRecord) -> CurveView:
        """Return the goodput curves of a job."""
        prediction, now_seconds = self._live.curve(job), self._clock.now()
        if isinstance(prediction, NoOutlook):
            return CurveView(job.id, now_seconds, missing=prediction.reason)
        usd = None if prediction.held is None else prediction.held.usd_per_million
        value = prediction.value_of_time_usd_per_hour

        def shown(point: CurvePoint | None) -> CurvePointView | None:
            return None if point is None else _point_view(point, value, usd)

        return CurveView(
            job=job.id,
            at_seconds=now_seconds,
            offers=_offer_views(prediction, usd),
            measured=tuple(
                MeasuredSizeView(
                    size.device_kind,
                    size.instances,
                    size.devices,
                    size.goodput,
                    size.batch,
                    size.steps,
                )
                for size in prediction.measured
            ),
            held=shown(prediction.held),
            candidate=shown(prediction.candidate),
            decided=prediction.is_decided,
            decision=None if prediction.decision is None else decision_view(prediction.decision),
            value_of_time_usd_per_hour=value,
            noise_examples=prediction.noise_examples,
            one_more_forbidden_by=prediction.beyond,
            unfit=prediction.unfit,
        )

    def outlook(self, job: JobRecord) -> OutlookView:
        """Return the predicted finish and cost of a job."""
        return self._view(job, job.spec.objective, self._live.outlook(job))

    def what_if(
        self, job: JobRecord, assumed: Hypothesis, present: OutlookView | None = None
    ) -> WhatIfView:
        """Return the outlook under a hypothetical objective, beside the present one.

        `present` is the outlook of the job's own objective; None: it is predicted, too.

        Raises:
            Conflict: the job has ended.
            SpecError: a value is invalid.
        """
        if job.phase.is_final:
            raise Conflict(f"job {job.id} has ended ({job.phase}): nothing is left to predict")
        objective = _assumed_objective(job.spec.objective, assumed, self._clock.now())
        bounds = _assumed_bounds(job, assumed)
        prediction = self._live.outlook(job, objective, assumed.maximum)
        return WhatIfView(
            job=job.id,
            objective=objective,
            maximum=bounds.maximum,
            present=present or self.outlook(job),
            assumed=self._view(job, objective, prediction),
        )

    def change_plan(self, present: JobRecord, changed: JobRecord, shown: JobView) -> ChangePlan:
        """Return what the next plan would do with a changed job; nothing is stored.

        Args:
            present: the job as it is stored.
            changed: the job with its changes.
            shown: the view of the changed job.
        """
        predicted, now_seconds = self._live.next_decision(changed, present), self._clock.now()
        plan = ChangePlan(job=shown, present=self.outlook(present), changed=self.outlook(changed))
        if isinstance(predicted, NoOutlook):
            return replace(plan, missing=predicted.reason)
        decision = decision_at(now_seconds, predicted.decision)
        return replace(plan, decision=decision, usd_per_hour=predicted.usd_per_hour)

    def _view(
        self, job: JobRecord, objective: Objective, prediction: JobOutlook | NoOutlook
    ) -> OutlookView:
        now_seconds = self._clock.now()
        spent_usd = Ledger(self._store.ledger.entries(job.id)).spent(job.id, now_seconds)
        known = OutlookView(
            at_seconds=now_seconds,
            spent_usd=spent_usd,
            deadline_seconds=objective.deadline_seconds,
            most_usd=objective.most_usd,
        )
        if isinstance(prediction, NoOutlook):
            return replace(known, missing=prediction.reason)
        return replace(
            known,
            finish_seconds=_quantiles(prediction.seconds, now_seconds),
            total_usd=_quantiles(prediction.usd, float(spent_usd)),
            sizes=tuple(
                PlannedSizeView(
                    now_seconds + size.from_seconds, size.allocation, size.usd_per_hour
                )
                for size in prediction.sizes
            ),
            value_of_time_usd_per_hour=prediction.value_of_time_usd_per_hour,
            chance=prediction.chance,
            confidence=None if prediction.chance is None else objective.confidence,
            note=prediction.note,
            measured=prediction.is_measured,
        )


def _offer_views(
    prediction: LiveCurve, held_usd_per_million: float | None
) -> tuple[OfferCurveView, ...]:
    value = prediction.value_of_time_usd_per_hour
    return tuple(
        OfferCurveView(
            offer=offer.id,
            device_kind=offer.device_kind,
            purchase=offer.purchase,
            points=tuple(_point_view(point, value, held_usd_per_million) for point in points),
        )
        for offer, points in prediction.points
    )


def _point_view(
    point: CurvePoint, value_usd_per_hour: float, held_usd_per_million: float | None
) -> CurvePointView:
    equal_goodput = None
    if held_usd_per_million:
        usd_per_second = (point.usd_per_hour + value_usd_per_hour) / 3600.0
        equal_goodput = usd_per_second / (held_usd_per_million / _MILLION)
    return CurvePointView(
        allocation=point.allocation,
        goodput=point.goodput,
        goodput_band=point.band,
        usd_per_hour=point.usd_per_hour,
        usd_per_million_examples=point.usd_per_million,
        equal_goodput=equal_goodput,
        goodput_ahead=point.goodput_ahead,
        measured=point.is_measured,
        available=point.is_available,
        forbidden_by=point.bars,
    )


def _quantiles(prediction: Range, offset: float) -> QuantilesView:
    """Return the quantiles of a prediction plus `offset`."""
    return QuantilesView(
        prediction.median + offset,
        prediction.ninety_percent + offset,
        (prediction.low + offset, prediction.high + offset),
    )


def _assumed_objective(present: Objective, assumed: Hypothesis, now_seconds: float) -> Objective:
    """Return the objective with the assumed changes.

    Raises:
        SpecError: a value is invalid, or the deadline has passed.
    """
    objective = present
    value = assumed.value_of_time_usd_per_hour
    if value is not None:
        objective = replace(
            objective,
            preference=Preference.CHEAPEST if value == 0 else Preference.VALUE_OF_TIME,
            value_of_time_usd_per_hour=value or None,
            deadline_seconds=None,
        )
    if assumed.deadline_seconds is not None:
        objective = replace(objective, deadline_seconds=assumed.deadline_seconds)
    if assumed.budget_usd is not None:
        objective = replace(objective, budget_usd=assumed.budget_usd, is_uncapped=False)
    require_valid_objective(objective)
    deadline_seconds = assumed.deadline_seconds
    if deadline_seconds is not None and deadline_seconds <= now_seconds:
        raise SpecError("has passed: name a later time", "deadline_seconds")
    return objective


def _assumed_bounds(job: JobRecord, assumed: Hypothesis) -> InstanceBounds:
    """Return the bounds with the assumed maximum.

    Raises:
        SpecError: the maximum is invalid.
    """
    bounds = job.spec.instances
    if assumed.maximum is None:
        return bounds
    bounds = replace(bounds, maximum=assumed.maximum)
    require_valid_bounds(bounds)
    require_restartable_bounds(job.spec.restart, bounds)
    return bounds
