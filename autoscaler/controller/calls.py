"""Calls to clouds that carry out intents: all launches and terminations are made here.

An intent is written down before its call is made. A call may be made again after a crash: a launch
with its token is the same launch. The type of the cloud's answer decides what follows.

A launch may wait long for its call, in a queue of workers or for a throttled cloud. So at the
moment of the call it is checked again: the instance is wanted, its job takes instances, nothing is
frozen, no budget is used up.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from autoscaler.clock import Clock
from autoscaler.controller.launch_gate import LaunchGate
from autoscaler.controller.market import Market
from autoscaler.controller.refusals import NOTHING_LAUNCHED, refusal_by, tell_refused
from autoscaler.domain.errors import (
    CastorError,
    Conflict,
    ProviderError,
    Throttled,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    INSTANCE_TAG,
    JOB_TAG,
    UNDECIDED_FACT,
    Desired,
    HeldInstance,
    LaunchRequest,
)
from autoscaler.domain.intent import Intent, IntentKind
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

# So many calls of one launch fail before its offer is refused, and other offers are tried.
_MOST_TRIES = 5
_LONGEST_RETRY_SECONDS = 60.0


class Workers(Protocol):
    """Runs calls: in threads, or at once where time is simulated."""

    def submit(self, call: Callable[[], None]) -> object:
        """Run `call`, now or soon."""
        ...


class Lighthouses(Protocol):
    """Gives jobs their quorum servers."""

    def ensure(self, job: str) -> str:
        """The address of the job's lighthouse, which runs."""
        ...

    def release(self, job: str) -> None:
        """End the job's lighthouse."""
        ...


def launch_token(controller: str, instance: str, offer: str) -> str:
    """The token of one launch: another instance, generation or offer is another token."""
    return hashlib.sha256(f"{controller}\n{instance}\n{offer}".encode()).hexdigest()[:48]


def light(store: Store, lighthouses: Lighthouses, job: str) -> None:
    """Have the job's lighthouse run, and keep its address."""
    address = lighthouses.ensure(job)
    if address != store.jobs.get(job).lighthouse:
        store.jobs.set_lighthouse(job, address)


@dataclass(frozen=True, slots=True)
class CallWorkers:
    """Workers of each kind of call, so that launches that hang delay no termination."""

    launches: Workers
    terminations: Workers

    def of(self, kind: IntentKind) -> Workers:
        """Return the workers that make calls of this kind."""
        return self.launches if kind is IntentKind.LAUNCH else self.terminations


class Calls:
    """Makes the calls that are due, each in a worker, none twice at a time."""

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
        self._under_way: set[int] = set()
        self._lock = threading.Lock()
        self.on_outcome: Callable[[], None] = lambda: None

    def carry_out(self, now_seconds: float, launches: bool = True) -> int:
        """Start every call that is due and not under way; return how many.

        Without `launches` no launch is started.
        """
        started = 0
        for intent in self._store.intents.pending(now_seconds):
            if intent.kind is IntentKind.LAUNCH and not launches:
                continue
            with self._lock:
                if intent.id in self._under_way:
                    continue
                self._under_way.add(intent.id)
            self._workers.of(intent.kind).submit(partial(self._make, intent))
            started += 1
        return started

    def _make(self, intent: Intent) -> None:
        try:
            if intent not in self._store.intents.of_instance(intent.instance):
                return  # it was settled or put off since it was found to be due
            held = self._store.instances.get(intent.instance)
            if intent.kind is IntentKind.TERMINATE:
                self._terminate(intent, held)
            elif self._may_launch(intent, held):
                self._launch(intent, held)
        except Unavailable as error:
            self._unanswered(intent, error)
        except Exception as error:  # the edge of a worker: whatever it is, the call is made again
            _log.exception("intent %s of %s", intent.kind, intent.instance)
            self._unanswered(intent, error)
        finally:
            with self._lock:
                self._under_way.discard(intent.id)
            self.on_outcome()

    def _may_launch(self, intent: Intent, held: HeldInstance) -> bool:
        """Return whether to go on with a launch; otherwise its intent stays pending.

        What came of an unwanted launch that was sent is found out from lists (`Observer`).
        """
        if held.desired is Desired.ABSENT and intent.sent_seconds is not None:
            return False
        obstacle = self._gate.obstacle(held, self._clock.now())
        if obstacle is not None:
            _log.info("%s is not launched now: %s", held.id, obstacle)
        return obstacle is None

    def _launch(self, intent: Intent, held: HeldInstance) -> None:
        """Call the cloud, if the launch is still wanted after all that may take long."""
        light(self._store, self._lighthouses, held.job)
        tags = {
            CONTROLLER_TAG: self._controller,
            JOB_TAG: held.job,
            INSTANCE_TAG: held.id,
        }
        request = LaunchRequest(intent.token, held.offer, tags, self._user_data(held))
        if not self._store.instances.begin_launch(held.id, self._clock.now()):
            return
        try:
            launched = self._market.launch(request)
        except NOTHING_LAUNCHED as error:
            self._refused(held, error)
        except Throttled as error:
            is_unsent = intent.sent_seconds is None
            self._try_again(intent, error, error.retry_after_seconds, is_unsent)
        except UnknownRefusal as error:
            if intent.attempts + 1 < _MOST_TRIES:
                self._try_again(intent, error, None, intent.sent_seconds is None)
            else:
                self._refused(held, error)
        else:
            self._store.instances.observe_cloud(held.id, launched, self._clock.now())
            if launched.is_decided:
                self._store.capacity.accepted(held.offer)
            else:
                self._store.instances.note(held.id, {UNDECIDED_FACT: "yes"})

    def _terminate(self, intent: Intent, held: HeldInstance) -> None:
        if held.cloud_id is not None:
            try:
                self._market.terminate(held.offer, held.cloud_id)
            except ProviderError as error:
                retry_seconds = error.retry_after_seconds if isinstance(error, Throttled) else None
                self._try_again(intent, error, retry_seconds)
                return
        self._store.intents.done(intent.id)

    def _refused(self, held: HeldInstance, error: ProviderError) -> None:
        """End an instance whose launch was refused, and keep away from its offer for a while."""
        now_seconds = self._clock.now()
        refuse = refusal_by(error, held.offer, now_seconds)
        try:
            self._store.instances.launch_failed(held.id, str(error), now_seconds, refuse)
        except Conflict:
            return
        tell_refused(self._store, held, error, now_seconds)

    def _unanswered(self, intent: Intent, error: Exception) -> None:
        """Make a call again whose outcome is not known; after some tries fall back.

        The offer is then refused and the instance unwanted. Whether the launch yielded something
        is found out from the cloud's lists.
        """
        self._try_again(intent, error, None)
        if intent.kind is not IntentKind.LAUNCH or intent.attempts + 1 < _MOST_TRIES:
            return
        now_seconds = self._clock.now()
        try:
            held = self._store.instances.get(intent.instance)
            refuse = refusal_by(error, held.offer, now_seconds)
            self._store.instances.give_up_launch(held.id, now_seconds, refuse)
        except CastorError:
            _log.exception("the launch of %s is tried on", intent.instance)
            return
        tell_refused(self._store, held, error, now_seconds)

    def _try_again(
        self,
        intent: Intent,
        error: Exception,
        retry_after_seconds: float | None,
        is_unsent: bool = False,
    ) -> None:
        wait_seconds = retry_after_seconds or min(2.0**intent.attempts, _LONGEST_RETRY_SECONDS)
        text = str(error) or type(error).__name__
        try:
            retry_seconds = self._clock.now() + wait_seconds
            self._store.intents.failed(intent.id, text, retry_seconds, is_unsent)
        except CastorError:
            _log.exception("intent %d of %s stays as it is", intent.id, intent.instance)
