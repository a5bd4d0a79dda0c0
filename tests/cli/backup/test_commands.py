"""`castor backup` and `castor restore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import CastorError, Conflict, NotAllowed, Unavailable
from autoscaler.wire import client
from tests.backup.test_backups import URL, write_state


class AnsweringClient:
    """Client of a controller that answers as a test sets."""

    asked: ClassVar[list[str]] = []
    error: ClassVar[CastorError | None] = None

    def __init__(self, url: str, token: str, authority: str | None = None) -> None:
        self._url = url

    def fleet(self) -> object:
        self.asked.append(self._url)
        if self.error is not None:
            raise self.error
        return object()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    write_state(tmp_path / "state").close()
    file = tmp_path / "a.backup"
    result = CliRunner().invoke(app, ["backup", str(file), "--state", str(tmp_path / "state")])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].endswith(f"{file.stat().st_size:,} bytes, verified")
    assert "not in it: jobs/ with 22 bytes" in result.output
    return file


@pytest.fixture
def restore(backup: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[CastorError | None], str]:
    def run(error: CastorError | None) -> str:
        monkeypatch.setattr(client, "Client", AnsweringClient)
        monkeypatch.setattr(AnsweringClient, "error", error)
        monkeypatch.setattr(AnsweringClient, "asked", [])
        state = backup.parent / "restored"
        result = CliRunner().invoke(app, ["restore", str(backup), "--state", str(state)])
        assert AnsweringClient.asked == [URL]
        if result.exception is not None:
            raise result.exception
        assert (state / "castor.db").exists()
        return result.output

    return run


@pytest.mark.parametrize("error", [Unavailable("none"), NotAllowed("another's token")])
def test_a_backup_of_a_lost_controller_is_restored(
    restore: Callable[[CastorError | None], str], error: CastorError
) -> None:
    output = restore(error)
    assert "costs of the" in output and "are not in this store" in output
    assert f"agents reach their controller at {URL}" in output


def test_nothing_is_restored_beside_the_living_controller(
    restore: Callable[[CastorError | None], str], backup: Path
) -> None:
    with pytest.raises(Conflict, match=r"answers at http://10\.0\.0\.7:8470: stop it for good"):
        restore(None)
    assert {path.name for path in backup.parent.iterdir()} == {"state", "a.backup"}
