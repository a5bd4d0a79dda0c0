"""What the tests of all rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.conformance")

# Machines differ: no example has a deadline. Hypothesis' own "ci" draws the same examples always.
settings.register_profile("untimed", deadline=None)
settings.load_profile("ci" if "CI" in os.environ else "untimed")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in SQLite that is new and migrated, to be copied."""
    from autoscaler.store.store import open_store

    path = tmp_path_factory.mktemp("template") / "castor.db"
    open_store(f"sqlite:///{path}").close()
    return path
