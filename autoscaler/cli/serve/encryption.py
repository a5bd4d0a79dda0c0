"""Options of `castor serve` for encryption, and the refusal to serve a network without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.tls import SELF_SIGNED, TlsFiles, require_usable, self_signed_files
from autoscaler.wire.connection import is_loopback


@dataclass(frozen=True, slots=True)
class Encryption:
    """Options --tls-cert, --tls-key, --tls-ca and --insecure."""

    certificate: str | None = None
    key: Path | None = None
    authority: Path | None = None
    is_insecure: bool = False

    def files(self, state: Path, host: str, public_url: str | None) -> TlsFiles | None:
        """Return the files for HTTPS at `host`; None for HTTP.

        Raises:
            SpecError: the files can't be used, or other machines would be served over HTTP.
        """
        self._require_encrypted(public_url)
        if self.certificate is None:
            self._require_local(host, public_url)
            return None
        if self.is_insecure:
            raise SpecError("contradicts --tls-cert: leave one of them out", "--insecure")
        if self.certificate == SELF_SIGNED:
            self._require_no_files()
            return self_signed_files(state)
        if self.key is None:
            raise SpecError("is required with --tls-cert: the file of its key", "--tls-key")
        certificate = _absolute(Path(self.certificate))
        authority = certificate if self.authority is None else _absolute(self.authority)
        files = TlsFiles(certificate, _absolute(self.key), authority)
        require_usable(files)
        return files

    def _require_local(self, host: str, public_url: str | None) -> None:
        self._require_no_files()
        is_encrypted = public_url is not None and public_url.startswith("https://")
        is_local = is_loopback(f"//[{host}]" if ":" in host else f"//{host}")
        if not (is_local or is_encrypted or self.is_insecure):
            raise SpecError(
                f"{host} can be reached from other machines, and tokens and secrets would travel "
                "in the clear: add --tls-cert auto, or --public-url https://... of a proxy, or "
                "--insecure in a network that you trust",
                "--host",
            )

    def _require_encrypted(self, public_url: str | None) -> None:
        """Check that others reach the API by HTTPS, or on this machine."""
        if public_url is None or self.is_insecure or is_loopback(public_url):
            return
        if not public_url.startswith("https://"):
            raise SpecError(
                f"tokens and secrets would travel to {public_url} in the clear: write https://... "
                "or add --insecure in a network that you trust",
                "--public-url",
            )

    def _require_no_files(self) -> None:
        for path, option in ((self.key, "--tls-key"), (self.authority, "--tls-ca")):
            if path is not None:
                raise SpecError("needs --tls-cert with the file of a certificate", option)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()
