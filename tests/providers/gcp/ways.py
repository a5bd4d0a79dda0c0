"""Faults of Google Cloud's calls."""

from __future__ import annotations

from tests.fakes.faults import Fault, When

# Faults by name; the test sets the action.
WAYS = {
    "throttled": Fault("", code="rateLimitExceeded", status=403),
    "throttled with 429": Fault("", code="rateLimitExceeded", status=429),
    "broken": Fault("", code="backendError", status=500),
    "unavailable": Fault("", code="backendError", status=503),
    "timeout before": Fault("", When.LOST_BEFORE),
    "timeout after applying": Fault("", When.LOST_AFTER),
    "no capacity in the operation": Fault(
        "", When.IN_REPLY, code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    ),
    "quota": Fault("", code="quotaExceeded", status=403),
    "quota in the operation": Fault("", When.IN_REPLY, code="QUOTA_EXCEEDED"),
    "trouble in the operation": Fault("", When.IN_REPLY, code="INTERNAL_ERROR"),
    "denied": Fault("", code="forbidden", status=403),
    "malformed": Fault("", When.MALFORMED),
    "empty": Fault("", When.EMPTY),
}
