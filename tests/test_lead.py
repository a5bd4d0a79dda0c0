"""Checks of a follower before it starts, and the lead of an SQLite store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict, NotLeading, SpecError
from autoscaler.lead import Lead, check_follower
from autoscaler.loop_watch import LoopWatch
from autoscaler.service.access.people import PeopleAccess
from autoscaler.service.access.shared_secrets import require_same_key, require_shared_secrets
from autoscaler.store.memory.store import memory_store
from autoscaler.store.sql.leadership import Leadership, LeaseCandidate

POSTGRESQL = "postgresql://castor@db/castor"


@pytest.mark.parametrize("url", [None, "sqlite:////data/castor.db"])
def test_only_a_store_in_postgresql_has_followers(url: str | None, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--follow: needs a store in PostgreSQL"):
        check_follower(url, tmp_path)


def test_a_follower_needs_the_key_of_the_leader(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match=r"secret\.key is missing: copy"):
        check_follower(POSTGRESQL, tmp_path)
    (tmp_path / "secret.key").touch()
    check_follower(POSTGRESQL, tmp_path)


def test_a_leader_with_another_key_is_refused_unless_it_replaces_the_key(tmp_path: Path) -> None:
    settings = memory_store().settings
    require_same_key(settings, b"first", tmp_path)
    require_same_key(settings, b"first", tmp_path)
    with pytest.raises(Conflict, match="start with --new-key"):
        require_same_key(settings, b"second", tmp_path)
    require_same_key(settings, b"second", tmp_path, replaces=True)
    with pytest.raises(Conflict):
        require_same_key(settings, b"first", tmp_path)


def test_the_store_has_no_key_that_could_sign(tmp_path: Path) -> None:
    settings = memory_store().settings
    require_same_key(settings, b"first", tmp_path)
    assert "first" not in (settings.known("signing key") or "")


@pytest.mark.parametrize(
    ("key", "token", "file"),
    [(b"key", None, "client.json"), (b"key", "hers", "client.json"), (b"other", "his", "secret")],
)
def test_a_follower_needs_both_secrets(
    key: bytes, token: str | None, file: str, tmp_path: Path
) -> None:
    store = memory_store()
    people = PeopleAccess(store, SystemClock())
    people.set_owner("his")
    require_same_key(store.settings, b"key", tmp_path)
    require_shared_secrets(store.settings, people, b"key", "his", tmp_path)
    with pytest.raises(Conflict, match=f"{file}.*copy the file"):
        require_shared_secrets(store.settings, people, key, token, tmp_path)


def test_a_process_leads_an_sqlite_store_until_it_ends(tmp_path: Path) -> None:
    lead = Lead(f"sqlite:///{tmp_path}/castor.db", LeaseCandidate("here", ""), 6.0, SystemClock())
    with pytest.raises(NotLeading):
        lead.store.settings.mark("written", "1")
    lead.begin(follows=False)
    assert lead.leads and not lead.is_lost
    lead.store.settings.mark("written", "1")
    lead.require_lease()
    lead.end()
    lead.require_not_lost()


def test_a_lead_that_is_lost_during_the_start_is_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(
        leadership: Leadership, stopped: threading.Event, on_loss: Callable[[NotLeading], None]
    ) -> None:
        on_loss(NotLeading("another controller leads"))

    monkeypatch.setattr(Leadership, "keep", lose)
    lead = Lead(f"sqlite:///{tmp_path}/castor.db", LeaseCandidate("here", ""), 6.0, SystemClock())
    lead.begin(follows=False)
    for thread in threading.enumerate():
        if thread.name == "castor-lease":
            thread.join()
    ended = threading.Event()
    lead.call_on_loss(ended.set)
    assert ended.is_set()
    assert not lead.wait(threading.Event(), LoopWatch(SystemClock()))
    assert not lead.leads
    lead.end()
    with pytest.raises(NotLeading, match="another controller leads"):
        lead.require_not_lost()


def test_a_follower_of_a_controller_with_another_id_ends_before_it_leads(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/castor.db", SystemClock()
    lead = Lead(url, LeaseCandidate("here", ""), 6.0, clock)
    ended = threading.Event()
    lead.call_on_loss(ended.set)

    assert not lead.wait(threading.Event(), LoopWatch(clock), "another id")
    assert ended.is_set() and lead.is_lost and not lead.leads
    lead.end()
    with pytest.raises(NotLeading, match="castor adopt has replaced the id"):
        lead.require_not_lost()
    with pytest.raises(NotLeading):
        lead.store.settings.mark("written", "1")
