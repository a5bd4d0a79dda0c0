"""Options of `castor serve` for the identity provider."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.cli.serve.identity_provider import IdentityProvider
from autoscaler.domain.access import Role
from autoscaler.domain.errors import SpecError
from autoscaler.main import ServeSettings, serve
from autoscaler.service.access.oidc_settings import OidcSettings
from autoscaler.tls import TlsFiles

ISSUER = "https://provider.example/realms/lab"
GIVEN = IdentityProvider(ISSUER, "castor")
FILES = TlsFiles(Path("cert.pem"), Path("key.pem"), Path("cert.pem"))


def settings(
    host: str = "127.0.0.1",
    public_url: str | None = None,
    tls: TlsFiles | None = None,
    **options: Any,
) -> OidcSettings | None:
    return replace(GIVEN, **options).settings(host, public_url, tls)


def test_without_an_issuer_nobody_logs_in() -> None:
    assert IdentityProvider().settings("127.0.0.1", None, None) is None
    for options, name in (
        ({"client_id": "castor"}, "--oidc-client-id"),
        ({"secret_file": Path("secret")}, "--oidc-client-secret-file"),
        ({"domains": "example.org"}, "--oidc-domains"),
        ({"role": Role.VIEWER}, "--oidc-role"),
    ):
        with pytest.raises(SpecError, match=f"{name}: needs --oidc-issuer"):
            IdentityProvider(**options).settings("127.0.0.1", None, None)  # type: ignore[arg-type]


def test_the_options_are_those_of_the_provider(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden value\n")
    secret.chmod(0o600)
    made = settings(
        secret_file=secret, domains="Example.org, b.example", role=Role.SUBMITTER, hours=1.5
    )
    assert made == OidcSettings(
        *(ISSUER, "castor", "hidden value", "email"),
        *(frozenset({"example.org", "b.example"}), Role.SUBMITTER, 5400.0),
    )
    assert "hidden value" not in repr(made)
    assert settings(claim="sub") == OidcSettings(ISSUER, "castor", claim="sub")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"issuer": "http://provider.example"}, "--oidc-issuer"),
        ({"issuer": "ftp://provider.example"}, "--oidc-issuer"),
        ({"issuer": "https://"}, "--oidc-issuer"),
        ({"issuer": "https://[bad"}, "--oidc-issuer"),
        ({"issuer": "https://provider.example?x=1"}, "--oidc-issuer"),
        ({"client_id": None}, "--oidc-client-id"),
        ({"client_id": "a\0"}, "--oidc-client-id"),
        ({"role": Role.VIEWER}, "--oidc-domains"),
        ({"domains": "example.org"}, "--oidc-role"),
        ({"domains": "example.org", "role": Role.OPERATOR}, "--oidc-role"),
        ({"domains": "@example.org", "role": Role.VIEWER}, "--oidc-domains"),
        ({"domains": "example.org", "role": Role.VIEWER, "claim": "upn"}, "--oidc-domains"),
        ({"hours": 0.0}, "--oidc-hours"),
        ({"hours": float("nan")}, "--oidc-hours"),
        ({"hours": 10_000.0}, "--oidc-hours"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        settings(**options)
    assert refused.value.field == field


def test_people_log_in_by_https_or_on_this_machine() -> None:
    for address in (
        ("localhost", None, None),
        ("::1", None, None),
        ("10.0.0.1", None, FILES),
        ("10.0.0.1", "https://castor.example", None),
        ("0.0.0.0", "https://castor.example", FILES),
        ("127.0.0.1", "http://127.0.0.1:8470", None),
    ):
        assert settings(*address) is not None
    for address in (("10.0.0.1", None, None), ("10.0.0.1", "http://castor.example", None)):
        with pytest.raises(SpecError, match="people would log in without HTTPS"):
            settings(*address)
    for host in ("0.0.0.0", "::"):
        with pytest.raises(SpecError, match="--public-url: is required with --oidc-issuer"):
            settings(host, None, FILES)


def test_a_file_without_a_secret_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with pytest.raises(SpecError, match="no such file: name a file with one secret"):
        settings(secret_file=secret)
    for content in (b"", b"\n", b"\xff", "geheim\u00e4".encode(), b"x" * 2_000):
        secret.write_bytes(content)
        secret.chmod(0o600)
        with pytest.raises(SpecError, match="--oidc-client-secret-file"):
            settings(secret_file=secret)
    secret.write_text("hidden value")
    secret.chmod(0o644)
    with pytest.raises(SpecError, match="can be read by all users: chmod o= ") as refused:
        settings(secret_file=secret)
    assert "hidden" not in str(refused.value)


def test_a_provider_whose_extra_is_not_installed_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "authlib.integrations.base_client", None)
    monkeypatch.delitem(sys.modules, "autoscaler.service.access.oidc", raising=False)
    state = tmp_path / "state"
    with pytest.raises(SpecError, match=r"pip install 'castor-autoscaler\[server,oidc\]'"):
        serve(ServeSettings(state, port=0, oidc=settings()))
    assert not state.exists()


def test_neither_a_command_nor_a_controller_without_a_provider_imports_its_client() -> None:
    script = (
        "import sys; import autoscaler.main, autoscaler.cli.app, autoscaler.cli.access.login; "
        "import autoscaler.cli.serve.settings; "
        "print([name for name in ('authlib', 'httpx2', 'joserfc') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", script]
    printed = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert printed.stdout == "[]\n", printed.stderr
