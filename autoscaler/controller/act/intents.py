"""Provider calls that carry out intents: all launches and terminations.

An intent is stored before its call is made. A call may be repeated after a crash: a launch with
the same token is the same launch. The type of the provider's error decides what follows.

A launch may wait long for its call, in a queue of workers or for a throttled cloud. So it is
checked again at the moment of the call: the instance is wanted, its job takes instances, launches
are not frozen, and no budget is used up.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from autoscaler.clock import Clock
from autoscaler.controller.budgets.guard import LaunchGate
from autoscaler.controller.offers.market import Market
from autoscaler.controller.offers.refusals import (
    NOTHING_LAUNCHED,
    record_acceptance,
    record_refusal,
    refusal_by,
)
from autoscaler.controller.offers.zones import record_launched
from autoscaler.controller.workers import CallKind, CallWorkers, Workers
from autoscaler.domain.access import CONTROLLER
from autoscaler.domain.audit import AuditEntry
from autoscaler.domain.errors import (
    CastorError,
    Conflict,
    NotFound,
    NotLeading,
    ProviderError,
    Throttled,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    INSTANCE_TAG,
    JOB_TAG,
    Desired,
    HeldInstance,
    LaunchRequest,
)
from autoscaler.domain.intent import LONGEST_WAIT_SECONDS, Intent, IntentKind
from autoscaler.domain.plan import ReasonCode
from autoscaler.log_fields import log_fields
from autoscaler.spans import SpanOpener, no_span
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

# A launch counts as refused after this many failed calls; other offers are then tried.
_MOST_TRIES = 5
_LONGEST_RETRY_SECONDS = 60.0
LAUNCH_ACTION = "launch"


class Lighthouses(Protocol):
    """Host of jobs' quorum servers."""

    def ensure(self, job: str) -> str:
        """Start the job's lighthouse unless it runs; return its address."""
        ...

    def release(self, job: str) -> None:
        """End the job's lighthouse."""
        ...


def launch_token(controller: str, instance: str, offer: str) -> str:
    """Return the token of a launch, unique per controller, instance and offer."""
    return hashlib.sha256(f"{controller}\n{instance}\n{offer}".encode()).hexdigest()[:48]


def light(store: Store, lighthouses: Lighthouses, job: str) -> None:
    """Start the job's lighthouse unless it runs, and store its address.

    The store has an empty address before the start, so that the lighthouse is ended with its job
    if this controller is killed meanwhile.
    """
    known = store.jobs.get(job).lighthouse
    if known is None:
        store.jobs.set_lighthouse(job, "")
    address = lighthouses.ensure(job)
    if address != known:
        store.jobs.set_lighthouse(job, address)


def record_spend(store: Store, held: HeldInstance, now_seconds: float) -> None:
    """Add the launch of an instance to the audit log before its call, once for all its calls.

    The row has the price and the reason code of the job's latest decision.
    """
    if store.audit.has(LAUNCH_ACTION, held.id):
        return
    entries = store.journal.decisions(held.job, limit=1)
    reason = entries[0].decision.ground if entries else ReasonCode.NONE
    text = f"{held.offer} at ${held.usd_per_hour}/h: {reason or 'no reason code'}"
    entry = AuditEntry(now_seconds, CONTROLLER, "", "", LAUNCH_ACTION, held.id, after=text)
    store.audit.add(entry)


class IntentExecutor:
    """Executor of due intents in workers; each intent has at most one call at a time."""

    def __init__(
        self,
        store: Store,
        market: Market,
        lighthouses: Lighthouses,
        workers: CallWorkers,
        gate: LaunchGate,
        user_data: Callable[[HeldInstance], str],
        clock: Clock,
    ) -> None:
        self._store = store
        self._market = market
        self._lighthouses = lighthouses
        self._workers = workers
        self._gate = gate
        self._user_data = user_data
        self._clock = clock
        self._controller = store.settings.controller_id()
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self.on_outcome: Callable[[], None] = lambda: None
        self.span: SpanOpener = no_span

    def carry_out(self, now_seconds: float, launches: bool = True) -> int:
        """Start every due call that is not running; return how many.

        Without `launches`, no launch is started.
        """
        started = 0
        for intent in self._store.intents.pending(now_seconds):
            if intent.kind is IntentKind.LAUNCH and not launches:
                continue
            workers = self._workers_for(intent)
            with self._lock:
                if intent.id in self._running:
                    continue
                self._running.add(intent.id)
            workers.submit(partial(self._run_in_context, intent))
            started += 1
        return started

    def _workers_for(self, intent: Intent) -> Workers:
        held = self._store.instances.get(intent.instance)
        provider = self._market.provider_of(held.offer, held.cloud_id) or ""
        return self._workers.of(CallKind(intent.kind), provider)

    def _run_in_context(self, intent: Intent) -> None:
        """Run an intent in a span; all spans of one intent, in several ticks, have its number."""
        fields: dict[str, str | int] = {"instance": intent.instance, "intent": intent.id}
        with log_fields(**fields), self.span(f"{intent.kind} instance", **fields):
            self._run(intent)

    def _run(self, intent: Intent) -> None:
        try:
            if intent not in self._store.intents.of_instance(intent.instance):
                return  # the intent was settled or postponed meanwhile
            held = self._store.instances.get(intent.instance)
            if intent.kind is IntentKind.TERMINATE:
                self._terminate(intent, held)
            elif self._may_launch(intent, held):
                self._launch(intent, held)
        except NotLeading as error:  # another controller makes the call
            _log.warning("%s of %s is not called: %s", intent.kind, intent.instance, error)
        except Unavailable as error:
            self._handle_unknown_outcome(intent, error)
        except Exception as error:  # workers must not die: any error leads to a retry
            _log.exception("intent %s of %s", intent.kind, intent.instance)
            self._handle_unknown_outcome(intent, error)
        finally:
            with self._lock:
                self._running.discard(intent.id)
            self.on_outcome()

    def _may_launch(self, intent: Intent, held: HeldInstance) -> bool:
        """Return whether a launch may proceed; otherwise its intent stays pending.

        The outcome of an unwanted launch that was sent follows from listings (`Observer`).
        """
        if held.desired is Desired.ABSENT and intent.sent_seconds is not None:
            return False
        obstacle = self._gate.obstacle(held, self._clock.now())
        if obstacle is not None:
            _log.info("%s is not launched now: %s", held.id, obstacle)
        return obstacle is None

    def _launch(self, intent: Intent, held: HeldInstance) -> None:
        """Call the provider, if the launch is still wanted after the steps that may take long."""
        if self._store.jobs.get(held.job).spec.restart is None:
            light(self._store, self._lighthouses, held.job)
        tags = {
            CONTROLLER_TAG: self._controller,
            JOB_TAG: held.job,
            INSTANCE_TAG: held.id,
        }
        request = LaunchRequest(
            intent.token, held.offer, tags, self._user_data(held), held.alternatives
        )
        if not self._store.instances.begin_launch(held.id, self._clock.now()):
            return
        record_spend(self._store, held, self._clock.now())
        try:
            launched = self._market.launch(request)
        except NotFound as error:
            if intent.sent_seconds is None:
                self._record_refusal(held, error)
            else:  # what is not sold any more may have been launched before
                self._handle_unknown_outcome(intent, error)
        except NOTHING_LAUNCHED as error:
            self._record_refusal(held, error)
        except Throttled as error:
            is_unsent = intent.sent_seconds is None
            self._schedule_retry(intent, error, error.retry_after_seconds, is_unsent)
        except UnknownRefusal as error:
            if intent.attempts + 1 < _MOST_TRIES:
                self._schedule_retry(intent, error, None, intent.sent_seconds is None)
            else:
                self._record_refusal(held, error)
        else:
            after = self._store.instances.observe_cloud(held.id, launched, self._clock.now())
            record_launched(self._store, held, after, self._clock.now())
            _log.info(
                "%s is ordered: %s, %s", held.id, after.offer, launched.id, extra={"job": held.job}
            )
            if launched.is_decided:
                record_acceptance(self._store, after.offer, self._clock.now())
            else:
                self._store.instances.note(held.id, {Fact.UNDECIDED: "yes"})

    def _terminate(self, intent: Intent, held: HeldInstance) -> None:
        if held.cloud_id is not None:
            try:
                self._market.terminate(held.offer, held.cloud_id)
            except ProviderError as error:
                retry_seconds = error.retry_after_seconds if isinstance(error, Throttled) else None
                self._schedule_retry(intent, error, retry_seconds)
                return
        self._store.intents.done(intent.id)

    def _record_refusal(self, held: HeldInstance, error: ProviderError) -> None:
        """End an instance whose launch was refused, and back off from its offer."""
        now_seconds = self._clock.now()
        refuse = refusal_by(error, held.offer, now_seconds)
        try:
            self._store.instances.launch_failed(held.id, str(error), now_seconds, refuse)
        except Conflict:
            return
        record_refusal(self._store, self._market.offers, held, error, now_seconds)

    def _handle_unknown_outcome(self, intent: Intent, error: Exception) -> None:
        """Retry a call whose outcome is unknown; after several attempts give up the launch.

        The offer is then refused and the instance unwanted. Listings show whether the launch
        created an instance.
        """
        self._schedule_retry(intent, error, None)
        if intent.kind is not IntentKind.LAUNCH or intent.attempts + 1 < _MOST_TRIES:
            return
        now_seconds = self._clock.now()
        try:
            held = self._store.instances.get(intent.instance)
            refuse = refusal_by(error, held.offer, now_seconds)
            self._store.instances.give_up_launch(held.id, now_seconds, refuse)
        except CastorError:
            _log.exception("the launch of %s stays pending", intent.instance)
            return
        record_refusal(self._store, self._market.offers, held, error, now_seconds)

    def _schedule_retry(
        self,
        intent: Intent,
        error: Exception,
        retry_after_seconds: float | None,
        is_unsent: bool = False,
    ) -> None:
        wait_seconds = retry_after_seconds or min(2.0**intent.attempts, _LONGEST_RETRY_SECONDS)
        wait_seconds = min(wait_seconds, LONGEST_WAIT_SECONDS)
        text = str(error) or type(error).__name__
        try:
            retry_seconds = self._clock.now() + wait_seconds
            self._store.intents.failed(intent.id, text, retry_seconds, is_unsent)
        except CastorError:
            _log.exception("intent %d of %s stays unchanged", intent.id, intent.instance)
