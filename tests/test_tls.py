"""Certificates of the API: those that a controller signs itself, and those from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from autoscaler.cli.serve.encryption import Encryption
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.tls import TlsFiles, keep_self_signed, require_usable, self_signed_files
from autoscaler.wire.http import trusting

NOW_SECONDS = 1_800_000_000.0
YEAR_SECONDS = 365 * 86_400.0
HOST = "10.0.0.5"
FORWARDED = ["localhost", "127.0.0.1"]


def kept(
    state: Path,
    host: str = HOST,
    now_seconds: float = NOW_SECONDS,
    public_host: str | None = None,
    follows: bool = False,
) -> TlsFiles:
    files = self_signed_files(state)
    hosts = (host,) if public_host is None else (host, public_host)
    keep_self_signed(files, hosts, now_seconds, follows)
    return files


def hosts_of(files: TlsFiles) -> list[str]:
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_a_certificate_is_signed_once_for_its_host_and_can_be_trusted(tmp_path: Path) -> None:
    files = kept(tmp_path)
    text = files.authority_text()
    assert hosts_of(files) == [HOST, *FORWARDED]
    require_usable(files)
    trusting(text)
    assert kept(tmp_path, now_seconds=NOW_SECONDS + YEAR_SECONDS).authority_text() == text
    assert {path.stat().st_mode & 0o777 for path in files.key.parent.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("host", "later_seconds"), [("controller.example", 0.0), (HOST, 9.5 * YEAR_SECONDS)]
)
def test_a_certificate_for_another_host_or_near_its_end_is_replaced(
    tmp_path: Path, host: str, later_seconds: float
) -> None:
    text = kept(tmp_path).authority_text()
    files = kept(tmp_path, host, NOW_SECONDS + later_seconds)
    assert files.authority_text() != text
    assert hosts_of(files) == [host, *FORWARDED]


def test_a_certificate_is_for_the_public_host_too(tmp_path: Path) -> None:
    text = kept(tmp_path).authority_text()
    files = kept(tmp_path, public_host="castor.example")
    assert files.authority_text() != text
    assert hosts_of(files) == [HOST, "castor.example", *FORWARDED]
    text = files.authority_text()
    assert kept(tmp_path, public_host="castor.example").authority_text() == text


def test_a_follower_needs_the_certificate_that_instances_trust(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match=r"cert\.pem is no certificate for 10\.0\.0\.5.*copy tls/"):
        kept(tmp_path, follows=True)
    assert not list(tmp_path.iterdir())
    text = kept(tmp_path).authority_text()
    assert kept(tmp_path, follows=True).authority_text() == text
    with pytest.raises(Conflict, match=r"for 10\.0\.0\.6, and running"):
        kept(tmp_path, "10.0.0.6", follows=True)
    assert kept(tmp_path).authority_text() == text


def test_files_of_the_owner_stay_as_they_are(tmp_path: Path) -> None:
    files = replace(self_signed_files(tmp_path), is_self_signed=False)
    keep_self_signed(files, [HOST], NOW_SECONDS)
    assert not list(tmp_path.iterdir())


def test_a_damaged_certificate_or_a_lost_key_is_replaced(tmp_path: Path) -> None:
    files = kept(tmp_path)
    files.certificate.write_text("no certificate")
    assert hosts_of(kept(tmp_path)) == [HOST, *FORWARDED]
    files.key.unlink()
    require_usable(kept(tmp_path))


@pytest.mark.parametrize(
    ("changed", "text", "message"),
    [
        ("cert.pem", "none", "--tls-cert: .* are no certificate with its key"),
        ("key.pem", "none", "--tls-cert: .* are no certificate with its key"),
        ("ca.pem", "none", "--tls-ca: .* has no certificate in PEM format"),
        ("ca.pem", None, "--tls-ca: .* has no certificate in PEM format"),
        ("key.pem", None, "--tls-key: .* can't be read"),
    ],
)
def test_files_that_can_not_be_used_are_named(
    tmp_path: Path, changed: str, text: str | None, message: str
) -> None:
    files = kept(tmp_path)
    (files.key.parent / "ca.pem").write_text(files.authority_text())
    path = files.key.parent / changed
    path.unlink() if text is None else path.write_text(text)
    options = Encryption(str(files.certificate), files.key, files.key.parent / "ca.pem")
    with pytest.raises(SpecError, match=message):
        options.files(tmp_path, HOST, None)


def test_files_may_be_named_below_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = kept(tmp_path)
    monkeypatch.setenv("HOME", str(files.key.parent))
    options = Encryption("~/cert.pem", Path("~/key.pem"), Path("~/cert.pem"))
    assert options.files(tmp_path, HOST, None) == replace(files, is_self_signed=False)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    files, other = kept(tmp_path), kept(tmp_path / "other")
    with pytest.raises(SpecError, match="are no certificate with its key"):
        require_usable(TlsFiles(files.certificate, other.key, files.authority))


@pytest.mark.parametrize(
    ("options", "host", "public_url", "message"),
    [
        (Encryption(), HOST, None, "--host: .*tokens and secrets would travel in the clear"),
        (Encryption(), "0.0.0.0", None, "--insecure in a network that you trust"),
        (Encryption(), HOST, "http://castor.example", "--public-url: .* in the clear"),
        (Encryption(), "127.0.0.1", "http://castor.example", "--public-url: .* in the clear"),
        (Encryption(), HOST, "http://127.0.0.1:8470", "--host"),
        (Encryption("cert.pem"), HOST, None, "--tls-key: is required"),
        (Encryption(key=Path("key.pem")), "127.0.0.1", None, "--tls-key: needs --tls-cert"),
        (Encryption("auto", Path("key.pem")), HOST, None, "--tls-key: needs --tls-cert with"),
        (Encryption("auto", is_insecure=True), HOST, None, "--insecure: contradicts"),
    ],
)
def test_a_network_is_not_served_without_encryption(
    tmp_path: Path, options: Encryption, host: str, public_url: str | None, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        options.files(tmp_path, host, public_url)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "host", "public_url"),
    [
        (Encryption(), "127.0.0.1", None),
        (Encryption(), "localhost", None),
        (Encryption(), HOST, "https://castor.example"),
        (Encryption(), "127.0.0.1", "http://localhost:8470"),
        (Encryption(is_insecure=True), HOST, None),
        (Encryption(is_insecure=True), "127.0.0.1", "http://castor.example"),
    ],
)
def test_http_is_served_where_it_is_meant(
    tmp_path: Path, options: Encryption, host: str, public_url: str | None
) -> None:
    assert options.files(tmp_path, host, public_url) is None


def test_what_is_no_certificate_is_refused_by_a_client() -> None:
    with pytest.raises(SpecError, match="the controller's certificate can't be read"):
        trusting("none")
