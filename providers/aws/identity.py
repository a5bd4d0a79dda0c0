"""Verification of EC2 identity documents and of AWS's signatures.

An instance reads its signed document from its metadata service, at
`dynamic/instance-identity/rsa2048`. It is a signed message (CMS, RFC 5652) that contains the
document. The signature uses SHA-256 and an RSA key of 2,048 bits that belongs to the region.
`certificates/` has the keys' certificates as AWS publishes them:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html. The settings name a
certificate for a region that is newer.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

from asn1crypto import cms
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import load_pem_x509_certificate

from autoscaler.domain.errors import NotAllowed, SpecError
from providers.aws.settings import AwsSettings
from providers.identity import IdentityVerifier, InstanceIdentity

_MAX_CHARACTERS: Final = 16_384  # AWS's documents have 1,500
# Exceptions of asn1crypto for invalid bytes; some are raised only when a field is read.
_PARSE_ERRORS: Final = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, RecursionError),
)


class DocumentVerifier(IdentityVerifier):
    """Verifier of the identity documents of the regions of `settings`.

    Raises:
        SpecError: the certificate of a region is unknown.
    """

    def __init__(self, settings: AwsSettings) -> None:
        self._account = settings.account
        self._keys = {
            name: _public_key(region.identity_certificate or _published_certificate(name), name)
            for name, region in settings.regions.items()
        }

    def verify(self, proof: str) -> InstanceIdentity:
        """Return the instance named in a signed document, given as base64 text.

        Raises:
            NotAllowed: the document is invalid, is not signed by AWS, or belongs to another
                account or region.
        """
        signed = _read_proof(proof)
        document = _parse_document(signed.content)
        region, account = document.region, document.account
        key = self._keys.get(region)
        if key is None:
            raise NotAllowed(
                f"the identity document is of {region}, which the settings do not have"
            )
        signed.check(key, region)
        if self._account not in (None, account):
            raise NotAllowed(
                f"the identity document is of account {account}; the settings have account "
                f"{self._account}"
            )
        return InstanceIdentity(document.instance, document.pending_seconds)


@dataclass(frozen=True, slots=True)
class _Document:
    """Fields of a document before its signature is checked."""

    instance: str
    account: str
    region: str
    pending_seconds: float


@dataclass(frozen=True, slots=True)
class _SignedMessage:
    """Message with one signature; `attributes` are the signed bytes in DER."""

    content: bytes
    digest: bytes
    attributes: bytes
    signature: bytes

    def check(self, key: RSAPublicKey, region: str) -> None:
        """Check that the holder of `key` signed the content.

        Raises:
            NotAllowed: another key signed it, or the content was changed.
        """
        try:
            if hashlib.sha256(self.content).digest() != self.digest:
                raise InvalidSignature
            key.verify(self.signature, self.attributes, PKCS1v15(), SHA256())
        except InvalidSignature:
            raise NotAllowed(
                f"the identity document is not signed by AWS in {region}: if AWS has a new "
                f"certificate there, set regions.{region}.identity_certificate"
            ) from None


def _read_proof(proof: str) -> _SignedMessage:
    try:
        if len(proof) > _MAX_CHARACTERS:
            raise ValueError(f"it has {len(proof)} characters, more than {_MAX_CHARACTERS}")
        return _parse(base64.b64decode("".join(proof.split()), validate=True))
    except _PARSE_ERRORS as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise NotAllowed(f"the identity document can't be read: {reason}") from error


def _parse(message: bytes) -> _SignedMessage:
    """Parse a signed message (CMS) with one signature; nothing is verified.

    The signature must use SHA-256 and signed attributes.

    Raises:
        ValueError, ...: the bytes are not such a message; see `_PARSE_ERRORS`.
    """
    outer = cms.ContentInfo.load(message, strict=True)
    if outer["content_type"].native != "signed_data":
        raise ValueError("it is not a signed message")
    (signer,) = outer["content"]["signer_infos"]
    if signer["digest_algorithm"]["algorithm"].native != "sha256":
        raise ValueError("it is not signed with SHA-256")
    attributes = {
        attribute["type"].native: attribute["values"] for attribute in signer["signed_attrs"]
    }
    content = outer["content"]["encap_content_info"]
    (kind,), (digest,) = attributes["content_type"], attributes["message_digest"]
    if kind.native != content["content_type"].native:
        raise ValueError("the signed content is of another type")
    return _SignedMessage(
        content=bytes(content["content"].native),
        digest=bytes(digest.native),
        attributes=bytes(signer["signed_attrs"].untag().dump(force=True)),
        signature=bytes(signer["signature"].native),
    )


def _parse_document(content: bytes) -> _Document:
    try:
        fields: Mapping[str, Any] = json.loads(content)
        return _Document(
            instance=str(fields["instanceId"]),
            account=str(fields["accountId"]),
            region=str(fields["region"]),
            pending_seconds=datetime.fromisoformat(fields["pendingTime"]).timestamp(),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAllowed(f"the identity document lacks a required field: {error}") from error


def _published_certificate(region: str) -> str:
    certificate = files("providers.aws") / "certificates" / f"{region}.pem"
    if not certificate.is_file():
        raise SpecError(
            "AWS's certificate for identity documents is unknown here: add the RSA-2048 one from "
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html",
            f"regions.{region}.identity_certificate",
        )
    return certificate.read_text()


def _public_key(certificate: str, region: str) -> RSAPublicKey:
    try:
        key = load_pem_x509_certificate(certificate.encode()).public_key()
    except ValueError:
        key = None
    if not isinstance(key, RSAPublicKey):
        raise SpecError(
            "it is not a certificate of an RSA key: one begins with -----BEGIN CERTIFICATE-----",
            f"regions.{region}.identity_certificate",
        )
    return key
