"""Meanings of Google Cloud's refusals whose misreading would cost money."""

from __future__ import annotations

import pytest

from autoscaler.domain.errors import (
    InsufficientCapacity,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from providers.gcp.errors import Call, refusal

CALL = Call("us-central1-a", "instances.insert", "gpu")


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", InsufficientCapacity),
        # A spot instance was preempted while it was created.
        ("PREEMPTED", InsufficientCapacity),
        ("UNSUPPORTED_OPERATION", InsufficientCapacity),
        ("QUOTA_EXCEEDED", QuotaExceeded),
        ("conditionNotMet", PermissionDenied),
        ("rateLimitExceeded", Throttled),
        ("nobodyHasHeardOfThis", Unavailable),
    ],
)
def test_codes_have_types_that_decide_what_follows(code: str, meant: type[ProviderError]) -> None:
    assert type(refusal(code, "words", CALL)) is meant


def test_a_constraint_of_the_organisation_names_the_way_out() -> None:
    words = "Constraint constraints/compute.requireShieldedVm violated for project"
    error = refusal("conditionNotMet", words, CALL)
    assert "requireShieldedVm" in str(error)
    assert "allow it in the organisation's policy" in str(error)
