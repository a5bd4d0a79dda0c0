from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("werkzeug", reason="werkzeug is not installed")

from tests.providers.rack.package import install


@pytest.fixture(scope="session")
def installed_rack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture
def site(installed_rack: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the directory in which the package is installed, for the time of the test."""
    monkeypatch.syspath_prepend(str(installed_rack))
    yield installed_rack
    for name in [name for name in sys.modules if name.partition(".")[0] == "castor_rack"]:
        del sys.modules[name]
