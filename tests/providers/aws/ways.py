"""Faults of AWS's calls."""

from __future__ import annotations

from tests.fakes.faults import Fault, When

# Faults by name; the test sets the action.
WAYS = {
    "throttled": Fault("", code="RequestLimitExceeded", status=503),
    "broken": Fault("", code="InternalError", status=500),
    "timeout before": Fault("", When.LOST_BEFORE),
    "timeout after applying": Fault("", When.LOST_AFTER),
    "no capacity": Fault("", code="InsufficientInstanceCapacity", status=500),
    "no capacity in a 200": Fault("", When.IN_REPLY, code="InsufficientInstanceCapacity"),
    "quota": Fault("", code="VcpuLimitExceeded", status=400),
    "quota in a 200": Fault("", When.IN_REPLY, code="MaxSpotInstanceCountExceeded"),
    "trouble in a 200": Fault("", When.IN_REPLY, code="InternalError"),
    "denied": Fault("", code="UnauthorizedOperation", status=403),
    "malformed": Fault("", When.MALFORMED),
    "empty": Fault("", When.EMPTY),
}
