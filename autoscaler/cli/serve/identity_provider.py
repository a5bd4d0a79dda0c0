"""Options of `castor serve` for the identity provider that people log in through."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from autoscaler.domain.access import LEAST_LOGIN_HOURS, MOST_LOGIN_HOURS, Role
from autoscaler.domain.errors import SpecError
from autoscaler.domain.rules import require_number, require_word
from autoscaler.domain.text import quoted
from autoscaler.service.access.oidc_settings import EMAIL, OidcSettings
from autoscaler.spec.form_file import unreadable
from autoscaler.tls import TlsFiles
from autoscaler.wire.connection import is_private

_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NEW_ROLES: Final = (Role.VIEWER, Role.SUBMITTER)
_LONGEST_WORD: Final = 200
_MOST_SECRET_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """Options --oidc-issuer and those that need it; None or empty: not given."""

    issuer: str | None = None
    client_id: str | None = None
    secret_file: Path | None = None
    claim: str = EMAIL
    domains: str = ""
    role: Role | None = None
    hours: float = 12.0

    def settings(
        self, host: str, public_url: str | None, tls: TlsFiles | None
    ) -> OidcSettings | None:
        """Return the settings of the provider for a controller at this address; None for none.

        Raises:
            SpecError: an option can't be used, or people would log in without HTTPS.
        """
        if self.issuer is None:
            self._require_none()
            return None
        if not is_private(self.issuer) or "?" in self.issuer or "#" in self.issuer:
            raise SpecError(
                f"{quoted(self.issuer)} must be the https://... URL that the provider calls "
                "itself, without a query",
                "--oidc-issuer",
            )
        if not self.client_id:
            raise SpecError("is required with --oidc-issuer", "--oidc-client-id")
        require_word(self.client_id, "--oidc-client-id", _LONGEST_WORD)
        require_word(self.claim, "--oidc-claim", _LONGEST_WORD)
        require_number(self.hours, "--oidc-hours", LEAST_LOGIN_HOURS, MOST_LOGIN_HOURS)
        _require_reachable(host, public_url, tls)
        return OidcSettings(
            self.issuer,
            self.client_id,
            None if self.secret_file is None else _secret(self.secret_file),
            self.claim,
            self._domains(),
            self.role,
            self.hours * 3600.0,
        )

    def _require_none(self) -> None:
        given = {
            "--oidc-client-id": self.client_id,
            "--oidc-client-secret-file": self.secret_file,
            "--oidc-domains": self.domains,
            "--oidc-role": self.role,
        }
        for option, value in given.items():
            if value:
                raise SpecError("needs --oidc-issuer", option)

    def _domains(self) -> frozenset[str]:
        """Return the domains whose people are added at their first login.

        Raises:
            SpecError: one is no domain; or role, domains and claim don't fit each other.
        """
        names = [name.strip().lower() for name in self.domains.split(",") if name.strip()]
        for name in names:
            if not _DOMAIN.fullmatch(name):
                raise SpecError(f"{quoted(name)} is no domain, like example.org", "--oidc-domains")
        if self.role is None and names:
            raise SpecError("is required with --oidc-domains: viewer or submitter", "--oidc-role")
        if self.role is None:
            return frozenset()
        if self.role not in _NEW_ROLES:
            raise SpecError(
                f"must be {' or '.join(_NEW_ROLES)}: castor people set gives a higher role",
                "--oidc-role",
            )
        if not names:
            raise SpecError(
                "is required with --oidc-role: whose people are added, as example.org",
                "--oidc-domains",
            )
        if self.claim != EMAIL:
            raise SpecError(
                "needs --oidc-claim email: of other claims nobody verifies a domain",
                "--oidc-domains",
            )
        return frozenset(names)


def _require_reachable(host: str, public_url: str | None, tls: TlsFiles | None) -> None:
    """Check that browsers reach the controller, by HTTPS or on this machine.

    Raises:
        SpecError: they don't.
    """
    shown = f"[{host}]" if ":" in host else host
    url = public_url or f"{'http' if tls is None else 'https'}://{shown}"
    if not is_private(url):
        raise SpecError(
            "people would log in without HTTPS: add --tls-cert, or --public-url https://... of a "
            "proxy",
            "--oidc-issuer",
        )
    try:
        is_any = public_url is None and ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    if is_any:
        raise SpecError(
            f"is required with --oidc-issuer and --host {host}: the address for browsers",
            "--public-url",
        )


def _secret(path: Path) -> str:
    """Return the client's secret in a file.

    Raises:
        SpecError: the file can't be read, or others than its owner may read it, or it is none.
    """
    option = "--oidc-client-secret-file"
    try:
        if not path.is_dir() and path.stat().st_mode & 0o007:
            raise SpecError(f"{path} can be read by all users: chmod o= {path}", option)
        secret = path.read_text().strip()
    except OSError as error:
        wanted = "a file with one secret"
        raise SpecError(f"{path}: {unreadable(error, wanted)}", option) from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not text: write one secret to it", option) from None
    if not secret.isascii() or not secret or len(secret) > _MOST_SECRET_BYTES:
        raise SpecError(f"{path} must have one secret of ASCII letters", option)
    return secret
