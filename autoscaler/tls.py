"""Certificate and key of the controller's API, from files or signed by the controller itself.

Instances trust the authority that their user data names, and no other: for a certificate from
files the certificate itself, or the authority in a file of its own, so that the certificate can be
renewed while instances run.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.state_directory import write_private

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

SELF_SIGNED: Final = "auto"
_FORWARDED: Final = ("localhost", "127.0.0.1")
_DIRECTORY: Final = "tls"
_VALID: Final = timedelta(days=3650)
_LEAST_LEFT: Final = timedelta(days=365)
# A clock of an instance may be late.
_LATE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: certificate chain, key, and the authority that clients trust.

    `is_self_signed`: the controller itself keeps the files.
    """

    certificate: Path
    key: Path
    authority: Path
    is_self_signed: bool = False

    def authority_text(self) -> str:
        """Return the certificates that clients trust, as PEM."""
        return self.authority.read_text()


def require_usable(files: TlsFiles) -> None:
    """Check that the certificate, its key and the authority can be used.

    Raises:
        SpecError: a file can't be read, the key is another one's, or the authority is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for path, option in ((files.certificate, "--tls-cert"), (files.key, "--tls-key")):
        if not os.access(path, os.R_OK):
            raise SpecError(f"{path} can't be read: name a file in PEM format", option)
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (ssl.SSLError, OSError) as error:
        raise SpecError(
            f"{files.certificate} and {files.key} are no certificate with its key in PEM format: "
            f"{error.strerror or error}",
            "--tls-cert",
        ) from None
    try:
        context.load_verify_locations(cadata=files.authority_text())
    except (ssl.SSLError, ValueError, OSError):
        raise SpecError(
            f"{files.authority} has no certificate in PEM format", "--tls-ca"
        ) from None


def self_signed_files(state: Path) -> TlsFiles:
    """Return the files of the certificate that a controller signs itself, not yet written."""
    certificate = state / _DIRECTORY / "cert.pem"
    key = state / _DIRECTORY / "key.pem"
    return TlsFiles(certificate, key, certificate, is_self_signed=True)


def keep_self_signed(
    files: TlsFiles, hosts: Sequence[str], now_seconds: float, follows: bool = False
) -> None:
    """Write the key and the certificate for `hosts`, unless they are there or the owner's.

    They are kept, since running instances trust no other. A certificate that lacks a host, or ends
    within a year, is replaced, but not that of a controller that `follows` another one.

    Raises:
        Conflict: a follower has no such certificate.
    """
    now = datetime.fromtimestamp(now_seconds, UTC)
    if not files.is_self_signed or _is_for(files, hosts, now):
        return
    if follows:
        raise Conflict(
            f"{files.certificate} is no certificate for {' and '.join(hosts)}, and running "
            f"instances trust only the leader's: copy {_DIRECTORY}/ from its state directory and "
            "use its --host and --public-url, or name files with --tls-cert and --tls-ca"
        )
    files.key.parent.mkdir(mode=0o700, exist_ok=True)
    key, certificate = _signed(hosts, now)
    write_private(files.key, key)
    write_private(files.certificate, certificate)


def certificate_end_seconds(files: TlsFiles) -> float | None:
    """Return the end of the certificate's validity, since the epoch; None if it can't be read."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except (OSError, ValueError):
        return None
    return certificate.not_valid_after_utc.timestamp()


def _is_for(files: TlsFiles, hosts: Sequence[str], now: datetime) -> bool:
    """Return whether the files hold a certificate for all hosts that lasts for a year."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    lasts = certificate.not_valid_after_utc - now > _LEAST_LEFT
    is_complete = all(_name_of(host) in names for host in hosts)
    return lasts and files.key.exists() and is_complete


def _name_of(host: str) -> GeneralName:
    """Return the name of a host in a certificate."""
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(hosts: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    """Return a new key and a certificate for hosts, signed with it, both as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    # Users reach the API through a forwarded port of their machine, too.
    names = [_name_of(name) for name in dict.fromkeys((*hosts, *_FORWARDED))]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "castor controller")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LATE)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
