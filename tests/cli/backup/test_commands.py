"""`castor backup` and `castor restore`."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.backup.commands import refuse_beside_living
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, Conflict, NotAllowed, Unavailable, Unreachable
from autoscaler.state_directory import CLIENT_FILE, let_owner_in
from autoscaler.tls import keep_self_signed, self_signed_files
from autoscaler.wire import client, http
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


def test_a_backup_of_a_lost_controller_is_restored(
    restore: Callable[[CastorError | None], str],
) -> None:
    output = restore(Unreachable("none"))
    assert "costs of the" in output and "are not in this store" in output
    assert f"agents reach their controller at {URL}" in output


def test_nothing_is_restored_beside_the_living_controller(
    restore: Callable[[CastorError | None], str], backup: Path
) -> None:
    with pytest.raises(Conflict, match=r"answers at http://10\.0\.0\.7:8470: stop it for good"):
        restore(None)
    assert {path.name for path in backup.parent.iterdir()} == {"state", "a.backup"}


def test_nothing_is_restored_beside_a_controller_that_refuses_the_token(
    restore: Callable[[CastorError | None], str], backup: Path
) -> None:
    """The controller may be the backup's own, whose owner has another token since."""
    with pytest.raises(Conflict, match=rf"a controller answers at {URL}, but refuses .*--lost"):
        restore(NotAllowed("unknown token"))
    assert {path.name for path in backup.parent.iterdir()} == {"state", "a.backup"}


CANT_CHECK = r"the controller of this backup still runs at .* can't be checked"


@pytest.mark.parametrize("error", [Unavailable("503"), CastorError("no fleet")])
def test_nothing_is_restored_beside_a_controller_that_may_live(
    restore: Callable[[CastorError | None], str], backup: Path, error: CastorError
) -> None:
    with pytest.raises(Conflict, match=f"{CANT_CHECK}.*: set CASTOR_CA .*or add --lost"):
        restore(error)
    assert {path.name for path in backup.parent.iterdir()} == {"state", "a.backup"}


@pytest.mark.parametrize("error", [Unavailable("503"), NotAllowed("another's token")])
def test_one_that_is_said_to_be_lost_is_restored_without_the_check(
    backup: Path, monkeypatch: pytest.MonkeyPatch, error: CastorError
) -> None:
    monkeypatch.setattr(client, "Client", AnsweringClient)
    state = backup.parent / "restored"
    command = ["restore", str(backup), "--state", str(state), "--lost"]
    monkeypatch.setattr(AnsweringClient, "error", None)
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, Conflict)  # it answers, whatever the option says
    monkeypatch.setattr(AnsweringClient, "error", error)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (state / "castor.db").exists()


@contextmanager
def listening(directory: Path, speaks_tls: bool) -> Iterator[str]:
    """Yield the address of a server that ends each connection after its handshake, if any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = self_signed_files(directory)
    keep_self_signed(files, ["127.0.0.1"], SystemClock().now())
    context.load_cert_chain(files.certificate, files.key)
    held: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
                held.append(connection)
                if speaks_tls:
                    context.wrap_socket(connection, server_side=True).close()
            except ssl.SSLError:
                continue
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


@pytest.mark.parametrize("authority", ["missing.pem", "none.pem", "other/tls/cert.pem", None])
def test_a_check_without_the_right_authority_is_no_answer(
    tmp_path: Path, authority: str | None
) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    for name in ("server", "other", "state"):
        (tmp_path / name).mkdir()
    keep_self_signed(self_signed_files(tmp_path / "other"), ["127.0.0.1"], SystemClock().now())
    with listening(tmp_path / "server", speaks_tls=True) as url:
        let_owner_in(tmp_path / "state", url, None if authority is None else tmp_path / authority)
        with pytest.raises(Conflict, match=CANT_CHECK):
            refuse_beside_living(tmp_path / "state")
        refuse_beside_living(tmp_path / "state", is_lost=True)


def test_the_named_authority_is_the_one_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server", "state"):
        (tmp_path / name).mkdir()
    with listening(tmp_path / "server", speaks_tls=True) as url:
        let_owner_in(tmp_path / "state", url, tmp_path / "missing.pem")
        monkeypatch.setenv("CASTOR_CA", str(tmp_path / "server/tls/cert.pem"))
        with pytest.raises(Conflict, match=rf"{CANT_CHECK} \(no controller answers at {url}"):
            refuse_beside_living(tmp_path / "state")
        monkeypatch.setenv("CASTOR_CA", str(tmp_path / "nowhere.pem"))
        with pytest.raises(Conflict, match=rf"{CANT_CHECK} \(CASTOR_CA: .*nowhere\.pem: No such"):
            refuse_beside_living(tmp_path / "state")


def test_a_controller_that_hangs_is_not_taken_for_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_TIMEOUTS", dict.fromkeys(http._TIMEOUTS, 0.2))
    for name in ("server", "state"):
        (tmp_path / name).mkdir()
    with listening(tmp_path / "server", speaks_tls=False) as url:
        for scheme in ("http", "https"):
            let_owner_in(
                tmp_path / "state",
                url.replace("https", scheme),
                tmp_path / "server/tls/cert.pem",
            )
            with pytest.raises(Conflict, match=CANT_CHECK):
                refuse_beside_living(tmp_path / "state")


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"url": "http://127.0.0.1:9"}'])
def test_a_backup_without_an_address_can_not_be_checked(tmp_path: Path, text: str) -> None:
    (tmp_path / CLIENT_FILE).write_text(text)
    with pytest.raises(Conflict, match=f"{CANT_CHECK} .*{CLIENT_FILE} has no address and token"):
        refuse_beside_living(tmp_path)


def test_nothing_listens_at_the_address_of_a_lost_controller(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    let_owner_in(tmp_path, f"http://127.0.0.1:{port}")
    refuse_beside_living(tmp_path)
