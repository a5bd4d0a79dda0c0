from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from providers.local.provider import LocalProvider
from tests.providers.local.cloud import QUICK, LocalCloud


class CloudMaker(Protocol):
    def __call__(self, **settings: Any) -> LocalCloud: ...


@pytest.fixture
def make_cloud(tmp_path: Path) -> Iterator[CloudMaker]:
    """Yield a function that creates the test's cloud; all calls share its directory."""
    clouds: list[LocalCloud] = []

    def make(**settings: Any) -> LocalCloud:
        clouds.append(LocalCloud(tmp_path / "cloud", replace(QUICK, **settings)))
        return clouds[-1]

    yield make
    for cloud in clouds:
        cloud.close()


@pytest.fixture
def cloud(make_cloud: CloudMaker) -> LocalCloud:
    return make_cloud()


@pytest.fixture
def provider(cloud: LocalCloud) -> LocalProvider:
    return cloud.connect()
