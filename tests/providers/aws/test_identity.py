"""Identity documents: whose signature is believed, for what, and where AWS's keys come from."""

from __future__ import annotations

import base64
import copy
import json
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from hypothesis import given
from hypothesis import strategies as st

import providers.aws
from autoscaler.domain.errors import NotAllowed, SpecError
from providers.aws.identity import DocumentVerifier
from providers.aws.reading import parse_settings
from providers.identity import InstanceIdentity
from tests.fakes.aws.identity import ACCOUNT, DocumentSigner, signer
from tests.providers.aws.cloud import REGION, START_SECONDS

INSTANCE = "i-0123456789abcdef0"
PROVEN = InstanceIdentity(INSTANCE, START_SECONDS)
CERTIFICATES = Path(providers.aws.__file__).parent / "certificates"


def document(certificate: str | None, region: str = REGION, **changes: Any) -> dict[str, Any]:
    ground = {"subnets": {f"{region}a": "subnet-0a1b2c3d"}, "user_data": "s3://bucket/parcels"}
    if certificate is not None:
        ground["identity_certificate"] = certificate
    pool = {
        "region": region,
        "launch_template": {"id": "lt-0123456789abcdef0", "version": 1},
        "instance_types": ["g5.xlarge"],
        "purchases": ["spot"],
        "max_instances": 1,
        "max_usd_per_hour": 1,
    }
    return {
        "schema": 1,
        "deployment": "test",
        "account": ACCOUNT,
        "regions": {region: ground},
        "pools": {"gpu": pool},
        "max_usd_per_hour": 1,
    } | changes


def verifier(certificate: str | None, region: str = REGION, **changes: Any) -> DocumentVerifier:
    told = document(certificate, region, **changes)
    return DocumentVerifier(parse_settings(json.dumps(told), "pools.json"))


def ours() -> DocumentVerifier:
    return verifier(signer(REGION).certificate)


def test_what_the_region_has_signed_is_believed() -> None:
    assert ours().verify(signer(REGION).proof(INSTANCE, START_SECONDS)) == PROVEN


def test_where_no_account_is_named_any_does() -> None:
    proof = signer(REGION).proof(INSTANCE, START_SECONDS, accountId="210987654321")
    told = document(signer(REGION).certificate)
    del told["account"]
    anybodys = DocumentVerifier(parse_settings(json.dumps(told), "pools.json"))
    assert anybodys.verify(proof) == PROVEN
    with pytest.raises(
        NotAllowed, match=f"account 210987654321; the settings have account {ACCOUNT}"
    ):
        ours().verify(proof)


def test_another_key_is_not_aws() -> None:
    with pytest.raises(NotAllowed, match=f"not signed by AWS in {REGION}: .*identity_certificate"):
        ours().verify(DocumentSigner(REGION).proof(INSTANCE, START_SECONDS))


def test_another_document_under_the_signature_is_refused() -> None:
    proof = base64.b64decode(signer(REGION).proof(INSTANCE, START_SECONDS))
    forged = proof.replace(INSTANCE.encode(), b"i-0fedcba9876543210")
    assert forged != proof
    with pytest.raises(NotAllowed, match="not signed"):
        ours().verify(base64.b64encode(forged).decode())


def test_a_document_of_another_region_is_refused() -> None:
    proof = signer(REGION).proof(INSTANCE, START_SECONDS, region="eu-west-1")
    with pytest.raises(NotAllowed, match="of eu-west-1, which the settings do not have"):
        ours().verify(proof)


def test_what_can_not_be_read_is_no_proof() -> None:
    for proof in ("", "no base64!", base64.b64encode(b"0\x80 no message").decode(), "A" * 20_000):
        with pytest.raises(NotAllowed, match="can't be read"):
            ours().verify(proof)
    for content in (b"no JSON", b"[]", b"{}", b'{"instanceId": "i-1"}'):
        with pytest.raises(NotAllowed, match="lacks a required field"):
            ours().verify(signer(REGION).signed(content))


@given(place=st.integers(0, 2000), value=st.integers(0, 255))
def test_a_byte_that_was_changed_never_makes_somebody_else(place: int, value: int) -> None:
    message = bytearray(base64.b64decode(_proof()))
    message[place % len(message)] = value
    with suppress(NotAllowed):
        assert _ours().verify(base64.b64encode(message).decode()) == PROVEN


@cache
def _proof() -> str:
    return signer(REGION).proof(INSTANCE, START_SECONDS)


@cache
def _ours() -> DocumentVerifier:
    return ours()


@pytest.mark.parametrize("path", sorted(CERTIFICATES.glob("*.pem")), ids=lambda path: path.stem)
def test_certificates_of_aws_are_what_they_say(path: Path) -> None:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    certificate.verify_directly_issued_by(certificate)  # no letter of it is another
    key = certificate.public_key()
    assert isinstance(key, RSAPublicKey) and key.key_size == 2048
    assert certificate.not_valid_after_utc > datetime(2190, 1, 1, tzinfo=UTC)
    assert "Amazon Web Services LLC" in certificate.subject.rfc4514_string()
    verifier(None, path.stem)


def test_no_two_regions_have_the_same_certificate() -> None:
    texts = [path.read_text() for path in CERTIFICATES.glob("*.pem")]
    assert len(set(texts)) == len(texts) >= 36


def test_a_region_without_a_certificate_needs_one() -> None:
    with pytest.raises(
        SpecError, match=r"regions\.xx-new-1\.identity_certificate: .*regions-certs"
    ):
        verifier(None, "xx-new-1")
    told = signer(REGION).certificate
    assert verifier(told, "xx-new-1")
    with pytest.raises(SpecError, match=r"identity_certificate: it is not a certificate"):
        verifier(told[:200], "xx-new-1")


def test_an_account_has_twelve_digits() -> None:
    told = copy.deepcopy(document(None))
    told["account"] = "12"
    with pytest.raises(SpecError, match='account: "12" is not valid'):
        parse_settings(json.dumps(told), "pools.json")
