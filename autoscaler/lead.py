"""Lead of a store by this process: the opened store, its lease, and the thread that renews it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import Conflict, NotLeading, SpecError, StoreError
from autoscaler.loop_watch import LoopWatch
from autoscaler.store.opening import open_store
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.leadership import Leadership, LeaseCandidate, acquire_free

_log = logging.getLogger(__name__)


def check_follower(store_url: str | None, state: Path) -> None:
    """Check what only a follower needs: a store that others reach, and their signing key.

    Raises:
        SpecError: the store is not in PostgreSQL.
        Conflict: the state directory has no signing key.
    """
    if not (store_url or "").startswith("postgres"):
        raise SpecError(
            "needs a store in PostgreSQL, which two hosts can reach: name it with --store",
            "--follow",
        )
    if not (state / "secret.key").exists():
        raise Conflict(
            f"{state}/secret.key is missing: copy secret.key and client.json from the state "
            "directory of the controller that leads, mode 0600"
        )


class Lead:
    """Store that this process leads, or whose leader it follows."""

    def __init__(
        self, store_url: str, candidate: LeaseCandidate, lease_seconds: float, clock: Clock
    ) -> None:
        """Open the store, without leading it yet.

        Raises:
            StoreError: the store can't be opened.
        """
        fence = WriteFence()
        self.store = open_store(store_url, fence)
        self._on_loss: Callable[[], None] = lambda: None
        self._clock = clock
        self._stopped = threading.Event()
        self._loss: NotLeading | None = None
        self._keeper: threading.Thread | None = None
        try:
            self._leadership = Leadership(store_url, candidate, fence, lease_seconds)
        except BaseException:
            self.store.close()
            raise

    @property
    def leads(self) -> bool:
        """Whether this process leads the store, as far as it knows."""
        return self._keeper is not None and self._loss is None

    @property
    def is_lost(self) -> bool:
        """Whether this process has led, and another one has led since."""
        return self._loss is not None

    def begin(self, follows: bool) -> None:
        """Acquire the lease; one that `follows` may do so later.

        Raises:
            Conflict: another controller leads the store, and this one does not follow.
            StoreError: the database does not answer.
        """
        if follows:
            if self._leadership.acquire():
                self._keep()
            return
        acquire_free(self._leadership, self._clock)
        self._keep()

    def wait(
        self, stopped: threading.Event, watch: LoopWatch, controller_id: str | None = None
    ) -> bool:
        """Wait until the lease is free and acquire it; return whether this process leads now.

        It does not if `stopped` is set first. It must end if it has led before, or if the store
        has another id by then than `controller_id`, under which the process was assembled: its
        providers label and list instances by that id. None: any id.
        """
        while not (stopped.is_set() or self.is_lost):
            watch.begin()
            try:
                if self._leadership.acquire():
                    self._require_id(controller_id)
                    self._keep()
                    return True
            except NotLeading as error:
                self._lose(error)
            except StoreError as error:
                _log.warning("this follower can't look after the leader: %s", error)
            finally:
                watch.end(succeeded=False)
            stopped.wait(self._leadership.renewal_seconds / 2)
        return False

    def call_on_loss(self, act: Callable[[], None]) -> None:
        """Call `act` once another process has taken the lead over; now, if it has already.

        `act` may be called twice.
        """
        self._on_loss = act
        if self.is_lost:
            act()

    def require_lease(self) -> None:
        """Check that a call to a cloud may begin.

        Raises:
            NotLeading: it may not.
        """
        self._leadership.require_lease()

    def require_not_lost(self) -> None:
        """Raise the loss of the lead, if there was one.

        Raises:
            NotLeading: another process has led since.
        """
        if self._loss is not None:
            raise self._loss

    def leader_address(self) -> str | None:
        """Return the address of the controller that leads; None if its lease is over."""
        leader = self._leadership.leader()
        return None if leader is None or leader.left_seconds <= 0 else leader.address

    def end(self) -> None:
        """Release the lease, and close what is open."""
        self._stopped.set()
        if self._keeper is not None:
            self._keeper.join()
        self._leadership.release()
        self.store.close()

    def _require_id(self, controller_id: str | None) -> None:
        if controller_id not in (None, self.store.settings.controller_id()):
            raise NotLeading(
                "castor adopt has replaced the id of this store's controller since this follower "
                "started: start it again"
            )

    def _keep(self) -> None:
        _log.info("this controller leads the store %s", self.store.url)
        self._keeper = threading.Thread(
            target=self._leadership.keep,
            args=(self._stopped, self._lose),
            name="castor-lease",
            daemon=True,
        )
        self._keeper.start()

    def _lose(self, error: NotLeading) -> None:
        _log.critical("%s; this controller ends", error)
        self._loss = error
        self._on_loss()
