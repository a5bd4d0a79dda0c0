"""Offers that a job leaves out because its script failed there, for a reason of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.controller.jobs.fitting import device_bytes
from autoscaler.domain.errors import UnknownInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import Failure
from autoscaler.failures.consequences import CONSEQUENCES
from autoscaler.store.store import Store

FAILURE_WINDOW_SECONDS = 86_400.0
"""Time for which a failure counts against a machine, an offer, a job and its owner."""


def failed_offers(
    store: Store, job: JobRecord, offers: Sequence[Offer], now_seconds: float
) -> Mapping[str, str]:
    """Return the offers that a job leaves out after failures of the last day, with the reasons.

    None is left out if no other offer would be left.
    """
    if job.attempt == 1:
        return {}
    reasons: dict[str, str] = {}
    for record in store.reports.recent_failures(now_seconds - FAILURE_WINDOW_SECONDS, job.id):
        reasons |= left_out_after(store, record.failure, offers)
    permitted = {offer.id for offer in offers if job.spec.instances.permits(offer)}
    return reasons if permitted - reasons.keys() else {}


def left_out_after(store: Store, failure: Failure, offers: Sequence[Offer]) -> Mapping[str, str]:
    """Return the offers that can't be expected to do better than the one of a failure."""
    rule = CONSEQUENCES[failure.category]
    needs_memory = rule.needs_device_memory and failure.device_limit is None
    if not rule.is_elsewhere and not needs_memory:
        return {}
    failed = _offer_of(store, failure, offers)
    if failed is None:
        return {}
    return {
        offer.id: f"{offer.id}: {failure.category} on {failure.instance}"
        for offer in offers
        if (rule.is_elsewhere and _is_alike(offer, failed))
        or (needs_memory and _has_no_more_memory(offer, failed))
    }


def _offer_of(store: Store, failure: Failure, offers: Sequence[Offer]) -> Offer | None:
    try:
        name = store.instances.get(failure.instance).offer
    except UnknownInstance:
        return None
    return next((offer for offer in offers if offer.id == name), None)


def _is_alike(offer: Offer, failed: Offer) -> bool:
    return (offer.provider, offer.instance_type) == (failed.provider, failed.instance_type)


def _has_no_more_memory(offer: Offer, failed: Offer) -> bool:
    if _is_alike(offer, failed) or offer.device_kind == failed.device_kind:
        return True
    available_bytes, failed_bytes = device_bytes(offer), device_bytes(failed)
    if available_bytes is None or failed_bytes is None:
        return False
    return available_bytes <= failed_bytes
