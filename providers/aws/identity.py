"""The identity document of an EC2 instance, and AWS's signature under it.

An instance gets it from its metadata service, at `dynamic/instance-identity/rsa2048`: a signed
message (CMS, RFC 5652) with the document inside and a signature of SHA-256 with RSA of 2,048 bits,
by a key of the region. `certificates/` has these keys' certificates as AWS publishes them:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html. For a region that is
newer, settings name one.
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

_MOST_CHARACTERS: Final = 16_384  # AWS's have 1,500
# What asn1crypto raises for bytes that are not what they should be, some of it at their use.
_UNREADABLE: Final = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, RecursionError),
)


class DocumentVerifier(IdentityVerifier):
    """Knows whose signature a document of each region of `settings` must have.

    Raises:
        SpecError: the certificate of a region is not known.
    """

    def __init__(self, settings: AwsSettings) -> None:
        self._account = settings.account
        self._keys = {
            name: _key(region.identity_certificate or _published(name), name)
            for name, region in settings.regions.items()
        }

    def verify(self, proof: str) -> InstanceIdentity:
        """The instance that the base64 text of a signed document is of.

        Raises:
            NotAllowed: it is none, AWS did not sign it, or it is of another account or region.
        """
        signed = _read(proof)
        document = _readable_document(signed.content)
        region, account = document.region, document.account
        key = self._keys.get(region)
        if key is None:
            raise NotAllowed(f"the identity document is of {region}, where no pool is")
        signed.check(key, region)
        if self._account not in (None, account):
            raise NotAllowed(
                f"the identity document is of account {account}, and account is {self._account}"
            )
        return InstanceIdentity(document.instance, document.pending_seconds)


@dataclass(frozen=True, slots=True)
class _Document:
    """What is read of a document, before anybody has looked at its signature."""

    instance: str
    account: str
    region: str
    pending_seconds: float


@dataclass(frozen=True, slots=True)
class _SignedMessage:
    """A message with one signature; `attributes` are what was really signed, in DER."""

    content: bytes
    digest: bytes
    attributes: bytes
    signature: bytes

    def check(self, key: RSAPublicKey, region: str) -> None:
        """That the holder of `key` has signed the content.

        Raises:
            NotAllowed: it is somebody else's, or the content another.
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


def _read(proof: str) -> _SignedMessage:
    try:
        if len(proof) > _MOST_CHARACTERS:
            raise ValueError(f"it has {len(proof)} characters")
        return _parse(base64.b64decode("".join(proof.split()), validate=True))
    except _UNREADABLE as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise NotAllowed(f"the identity document can't be read: {reason}") from error


def _parse(message: bytes) -> _SignedMessage:
    """The one signature of a message, which must be of SHA-256 and over attributes.

    Raises:
        ValueError, ...: it is no such message; see `_UNREADABLE`.
    """
    outer = cms.ContentInfo.load(message, strict=True)
    if outer["content_type"].native != "signed_data":
        raise ValueError("it is no signed message")
    (signer,) = outer["content"]["signer_infos"]
    if signer["digest_algorithm"]["algorithm"].native != "sha256":
        raise ValueError("it is not signed with SHA-256")
    attributes = {each["type"].native: each["values"] for each in signer["signed_attrs"]}
    content = outer["content"]["encap_content_info"]
    (kind,), (digest,) = attributes["content_type"], attributes["message_digest"]
    if kind.native != content["content_type"].native:
        raise ValueError("what is signed is of another type")
    return _SignedMessage(
        content=bytes(content["content"].native),
        digest=bytes(digest.native),
        attributes=bytes(signer["signed_attrs"].untag().dump(force=True)),
        signature=bytes(signer["signature"].native),
    )


def _readable_document(content: bytes) -> _Document:
    try:
        told: Mapping[str, Any] = json.loads(content)
        return _Document(
            instance=str(told["instanceId"]),
            account=str(told["accountId"]),
            region=str(told["region"]),
            pending_seconds=datetime.fromisoformat(told["pendingTime"]).timestamp(),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAllowed(f"the identity document lacks what it must have: {error}") from error


def _published(region: str) -> str:
    certificate = files("providers.aws") / "certificates" / f"{region}.pem"
    if not certificate.is_file():
        raise SpecError(
            "AWS's certificate for identity documents is not known here: add the RSA-2048 one of "
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html",
            f"regions.{region}.identity_certificate",
        )
    return certificate.read_text()


def _key(certificate: str, region: str) -> RSAPublicKey:
    try:
        key = load_pem_x509_certificate(certificate.encode()).public_key()
    except ValueError:
        key = None
    if not isinstance(key, RSAPublicKey):
        raise SpecError(
            "it is no certificate of an RSA key: it begins with -----BEGIN CERTIFICATE-----",
            f"regions.{region}.identity_certificate",
        )
    return key
