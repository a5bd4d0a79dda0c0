"""Stores whose only writer is this process, as a leader opens them."""

from __future__ import annotations

from autoscaler.store.opening import open_store
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.leadership import Leadership, LeaseCandidate
from autoscaler.store.store import Store


def led_store(url: str) -> Store:
    """Open a store and lead it, so that it keeps in memory what it reads and writes."""
    fence = WriteFence()
    store = open_store(url, fence)
    assert Leadership(url, LeaseCandidate("test", "http://127.0.0.1:1"), fence).acquire()
    return store
