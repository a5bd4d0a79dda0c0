"""Signer of a fake AWS's identity documents, in the encoding that AWS uses."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from functools import cache

from asn1crypto import cms
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

ACCOUNT = "123456789012"
_END = b"\x00\x00"


@cache
def signer(region: str) -> DocumentSigner:
    """Return the signer of all documents of a region."""
    return DocumentSigner(region)


class DocumentSigner:
    """Signer with the key of one region.

    `certificate` is a value for `identity_certificate` of the settings.
    """

    def __init__(self, region: str, account: str = ACCOUNT) -> None:
        self.region = region
        self.account = account
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "a fake AWS")])
        begin = datetime(2020, 1, 1, tzinfo=UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=36_500))
            .sign(self._key, SHA256())
        )
        self.certificate = self._certificate.public_bytes(Encoding.PEM).decode()

    def proof(self, instance: str, pending_seconds: float, **changes: object) -> str:
        """Return the signed document of an instance, with `changes` of its fields."""
        pending = datetime.fromtimestamp(int(pending_seconds), UTC)
        document = {
            "accountId": self.account,
            "imageId": "ami-0123456789abcdef0",
            "instanceId": instance,
            "pendingTime": pending.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": self.region,
            "version": "2017-09-30",
        } | changes
        return self.signed(json.dumps(document, indent=2).encode())

    def signed(self, content: bytes, digest: bytes | None = None) -> str:
        """Return a message with `content`, in BER as AWS encodes it, as lines of base64."""
        digest = hashlib.sha256(content).digest() if digest is None else digest
        attributes = cms.CMSAttributes(
            [
                {"type": "content_type", "values": ["data"]},
                {"type": "message_digest", "values": [digest]},
            ]
        )
        issuer = cms.IssuerAndSerialNumber(
            {"issuer": _name(self._certificate), "serial_number": 1}
        )
        signer = cms.SignerInfo(
            {
                "version": "v1",
                "sid": cms.SignerIdentifier({"issuer_and_serial_number": issuer}),
                "digest_algorithm": {"algorithm": "sha256"},
                "signed_attrs": attributes,
                "signature_algorithm": {"algorithm": "sha256_rsa"},
                "signature": self._key.sign(attributes.dump(), PKCS1v15(), SHA256()),
            }
        )
        digests = cms.DigestAlgorithms([{"algorithm": "sha256"}])
        octets = b"\x04\x82" + len(content).to_bytes(2, "big") + content
        inner = b"\x30\x80" + _type("data") + b"\xa0\x80\x24\x80" + octets + 3 * _END
        message = b"\x30\x80" + _type("signed_data") + b"\xa0\x80\x30\x80\x02\x01\x01"
        message += digests.dump() + inner + cms.SignerInfos([signer]).dump() + 3 * _END
        return base64.encodebytes(message).decode()


def _type(name: str) -> bytes:
    return bytes(cms.ContentType(name).dump())


def _name(certificate: x509.Certificate) -> cms.Name:
    return cms.Name.load(certificate.issuer.public_bytes())
