"""What the tests of all rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.conformance")

# Machines differ: no example has a deadline. In CI the same examples are drawn always. As many as
# leave the whole suite short; `--hypothesis-profile thorough` draws more.
settings.register_profile("untimed", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.register_profile("steady", settings.get_profile("ci"), max_examples=40)
settings.load_profile("steady" if "CI" in os.environ else "untimed")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in SQLite that is new and migrated, to be copied."""
    from autoscaler.store.opening import open_store

    path = tmp_path_factory.mktemp("template") / "castor.db"
    open_store(f"sqlite:///{path}").close()
    return path
