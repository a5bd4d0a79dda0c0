"""Contract of a store for notices and their deliveries."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.notice import DeliveryState, NoticeKey, NoticeKind, UserNotice
from autoscaler.store.repositories.notices import KnownNotice
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW

FAILED = NoticeKey(NoticeKind.FAILED, "digits")
STALLED = NoticeKey(NoticeKind.STALLED, "digits")


def notice(key: NoticeKey = FAILED, at_seconds: float = NOW) -> UserNotice:
    """Return a notice about the job digits."""
    return UserNotice(
        key, at_seconds, f"{key.subject}: {key.kind}", "digits", figures={"usd": 1.5}
    )


class NoticesConformance:
    def test_a_notice_is_stored_once_with_a_delivery_for_each_target(self, store: Store) -> None:
        assert store.notices.add(notice(), ["ops", "chat"])
        assert not store.notices.add(notice(at_seconds=NOW + 1), ["ops"])
        assert store.notices.add(notice(replace(FAILED, episode=2)), [])
        (waiting,) = store.notices.waiting("ops")
        assert (waiting.notice, waiting.state) == (notice(), DeliveryState.WAITING)
        assert (waiting.attempts, waiting.next_seconds) == (0, NOW)
        assert [entry.target for entry in store.notices.latest()] == ["chat", "ops"]
        (newest,) = store.notices.latest(limit=1)
        assert store.notices.latest(below=newest.number) == (waiting,)
        assert store.notices.latest(below=waiting.number) == ()

    def test_a_condition_is_open_until_it_ends_and_an_event_never(self, store: Store) -> None:
        store.notices.add(notice(), [])
        store.notices.add(notice(STALLED), [])
        assert store.notices.known() == (
            KnownNotice(FAILED, is_open=False),
            KnownNotice(STALLED, is_open=True),
        )
        store.notices.end(STALLED, NOW + 5)
        store.notices.end(STALLED, NOW + 6)
        store.notices.end(replace(STALLED, subject="unknown"), NOW + 6)
        assert [known.is_open for known in store.notices.known()] == [False, False]

    def test_an_attempt_is_recorded_and_those_due_first_come_first(self, store: Store) -> None:
        store.notices.add(notice(), ["ops"])
        store.notices.add(notice(STALLED), ["ops"])
        first, second = store.notices.waiting("ops")
        late = replace(first, attempts=1, next_seconds=NOW + 60, error="timed out")
        store.notices.record(late)
        assert store.notices.waiting("ops") == (second, late)
        done = replace(late, state=DeliveryState.DELIVERED, error=None, done_seconds=NOW + 61)
        store.notices.record(done)
        assert store.notices.waiting("ops") == (second,)
        assert done in store.notices.latest()

    def test_deliveries_to_targets_that_are_gone_are_given_up(self, store: Store) -> None:
        store.notices.add(notice(), ["ops", "gone"])
        (dropped,) = store.notices.give_up_others(["ops"], "no such target", NOW + 9)
        assert (dropped.target, dropped.state) == ("gone", DeliveryState.GIVEN_UP)
        assert (dropped.error, dropped.done_seconds) == ("no such target", NOW + 9)
        assert store.notices.give_up_others(["ops"], "no such target", NOW + 10) == ()
        assert len(store.notices.waiting("ops")) == 1
        assert store.notices.waiting("gone") == ()
