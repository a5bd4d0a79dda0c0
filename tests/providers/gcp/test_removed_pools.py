"""Caps of Compute Engine while instances of removed or renamed pools run."""

from __future__ import annotations

from tests.providers.cloud.removed_pools import RemovedPools


class TestGcp(RemovedPools):
    pass
