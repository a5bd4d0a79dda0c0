"""Launch and end of one cheap instance, which shows what reading can't."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Final

from autoscaler.cli.check.findings import CheckResult, Finding
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, ProviderError, Throttled, Unavailable
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    INSTANCE_TAG,
    JOB_TAG,
    CloudInstance,
    CloudState,
    LaunchRequest,
)
from autoscaler.domain.offer import Offer, Purchase
from providers.base import Provider

CONTROLLER: Final = "castor-check"
MOST_USD: Final = Decimal(1)
_SUBJECT: Final = "trial launch"
_RUNNING_SECONDS: Final = 300.0
_ENDING_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 2.0
# The instance is paid for this long at most, if its end is accepted at once.
_PAID_SECONDS: Final = _RUNNING_SECONDS + _ENDING_SECONDS


def offer_to_try(offers: Sequence[Offer]) -> Offer | None:
    """Return the cheapest offer that costs at most `MOST_USD` in the trial; None without one."""
    usable = [
        offer
        for offer in offers
        if offer.purchase in (Purchase.SPOT, Purchase.ON_DEMAND) and trial_usd(offer) <= MOST_USD
    ]
    return min(usable, key=lambda offer: (offer.usd_per_hour, offer.id), default=None)


def trial_usd(offer: Offer) -> Decimal:
    """Return what the trial costs at most, in US dollars."""
    return offer.usd_per_hour * Decimal(_PAID_SECONDS) / 3600


def try_launch(provider: Provider, offer: Offer, clock: Clock) -> list[Finding]:
    """Launch one instance, wait until it runs, and end it; return what was found.

    The instance is ended also after an error and after Ctrl-C. Its agent finds no controller, so
    that the instance would power itself off later.
    """
    tags = {CONTROLLER_TAG: CONTROLLER, JOB_TAG: "castor-check", INSTANCE_TAG: "castor-check-0-1"}
    nowhere = {"controller": "http://192.0.2.1:1", "join_token": "none", "instance": "check"}
    token = f"castor-check-{uuid.uuid4().hex[:16]}"
    request = LaunchRequest(token, offer.id, tags, json.dumps(nowhere))
    findings: list[Finding] = []
    try:
        findings += _launch_and_watch(provider, request, clock)
    except CastorError as error:
        findings.append(_finding(CheckResult.FAILED, f"{offer.id} is not launched: {error}"))
    finally:
        findings += _end(provider, token, clock)
    return findings


def _launch_and_watch(
    provider: Provider, request: LaunchRequest, clock: Clock
) -> Iterator[Finding]:
    """Yield what is found of a launch, until the instance runs."""
    began_seconds = clock.monotonic()
    launched = _launched(provider, request, clock)
    took_seconds = clock.monotonic() - began_seconds
    text = f"{launched.id} ({launched.offer}) is accepted in {took_seconds:.1f} s"
    yield _finding(CheckResult.OK, text)
    running = _await(provider, request.token, lambda seen: seen.state is CloudState.RUNNING, clock)
    if running is None:
        text = f"it does not run within {_RUNNING_SECONDS:.0f} s"
        yield _finding(CheckResult.FAILED, text)
        return
    yield _finding(CheckResult.OK, f"it runs after {clock.monotonic() - began_seconds:.0f} s")
    missing = sorted(request.tags.items() - running.tags.items())
    verdict = CheckResult.FAILED if missing else CheckResult.OK
    yield _finding(verdict, f"its list lacks {missing}" if missing else "its list has all tags")


def _launched(provider: Provider, request: LaunchRequest, clock: Clock) -> CloudInstance:
    """Return the launched instance. The same call is repeated while its outcome is unknown."""
    deadline_seconds = clock.monotonic() + _RUNNING_SECONDS
    while True:
        try:
            return provider.launch(request)
        except (Throttled, Unavailable):
            if clock.monotonic() > deadline_seconds:
                raise
        clock.sleep(_POLL_SECONDS)


def _end(provider: Provider, token: str, clock: Clock) -> list[Finding]:
    """End the instance of the token, if there is one, and wait until the cloud lists its end."""
    by_hand = (
        f"look for an instance with the tag {CONTROLLER_TAG}={CONTROLLER}, and end it by hand"
    )
    began_seconds = clock.monotonic()
    while True:
        try:
            launched = {seen.token: seen for seen in provider.instances()}.get(token)
            if launched is None:
                return []
            provider.terminate([launched.id])
            break
        except ProviderError as error:
            if clock.monotonic() - began_seconds > _ENDING_SECONDS:
                return [_finding(CheckResult.FAILED, f"{error}: {by_hand}")]
        clock.sleep(_POLL_SECONDS)
    ended = _await(
        *(provider, token, lambda seen: seen.state is CloudState.TERMINATED),
        *(clock, _ENDING_SECONDS),
    )
    if ended is None:
        text = f"its end is not listed within {_ENDING_SECONDS:.0f} s: {by_hand}"
        return [_finding(CheckResult.FAILED, text)]
    took_seconds = clock.monotonic() - began_seconds
    return [_finding(CheckResult.OK, f"it has ended {took_seconds:.0f} s after the call")]


def _finding(verdict: CheckResult, text: str) -> Finding:
    return Finding(_SUBJECT, verdict, text)


def _await(
    provider: Provider,
    token: str,
    is_there: Callable[[CloudInstance], bool],
    clock: Clock,
    longest_seconds: float = _RUNNING_SECONDS,
) -> CloudInstance | None:
    """Return the instance once the cloud lists it as wanted; None after `longest_seconds`.

    Errors of lists are tried again.
    """
    deadline_seconds = clock.monotonic() + longest_seconds
    while clock.monotonic() < deadline_seconds:
        try:
            listed = {seen.token: seen for seen in provider.instances()}
        except ProviderError:
            listed = {}
        seen = listed.get(token)
        if seen is not None and is_there(seen):
            return seen
        clock.sleep(_POLL_SECONDS)
    return None
