"""Assignment of ledger lines to clouds' bills, and the names in bills."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")

from autoscaler.domain.offer import Purchase
from autoscaler.domain.spending import BillPart
from providers.aws import settings as aws_settings
from providers.aws.cost_report import is_of_aws
from providers.cloud.bills import amount_of, part_of
from providers.gcp import settings as gcp_settings
from providers.gcp.cost_report import is_of_gcp

OF_AWS = (
    "gpu/g5.xlarge/us-east-1a/spot",
    "gpu/g5.xlarge/us-east-1a/on-demand",
    "gpu/p5.48xlarge/us-west-2-lax-1a/on-demand",  # a Local Zone
    "gpu/g4dn.2xlarge/us-east-1-wl1-bos-wlz-1/on-demand",  # a Wavelength Zone
    "gpu/g5.xlarge/us-gov-west-1b/spot",
    "block/p5.48xlarge/us-east-1a/reserved",
)
OF_GCP = (
    "gpu/g2-standard-4/us-central1-a/spot",
    "gpu/n1-standard-8+1xt4/europe-west12-c/on-demand",
    "gpu/a3-highgpu-8g/northamerica-northeast1-b/flex-start",
)
OF_NOBODY = (
    *("local-small", "g5-reserved", "a/b/spot", "a/b/c/d", "a/b/c/spot", ""),
    *("a/b/us-east-1a/rented", "x/a/b/us-east-1a/spot"),
)
BOUGHT = st.sampled_from(Purchase)


def test_the_ledger_s_offers_are_known_by_their_zones() -> None:
    assert all(is_of_aws(one) and not is_of_gcp(one) for one in OF_AWS)
    assert all(is_of_gcp(one) and not is_of_aws(one) for one in OF_GCP)
    assert not any(is_of_aws(one) or is_of_gcp(one) for one in OF_NOBODY)


@given(
    region=st.from_regex(re.compile(aws_settings.REGION, re.ASCII), fullmatch=True),
    rest=st.from_regex(re.compile(r"[a-z]|-[a-z]{3}-\d[a-z]", re.ASCII), fullmatch=True),
    purchase=BOUGHT,
)
def test_whatever_regions_of_aws_are_called(region: str, rest: str, purchase: Purchase) -> None:
    offer = f"pool/type/{region}{rest}/{purchase.value}"
    assert is_of_aws(offer) and not is_of_gcp(offer)


@given(
    region=st.from_regex(re.compile(gcp_settings.REGION, re.ASCII), fullmatch=True),
    zone=st.sampled_from("abcdef"),
    purchase=BOUGHT,
)
def test_whatever_regions_of_google_are_called(region: str, zone: str, purchase: Purchase) -> None:
    offer = f"pool/type/{region}-{zone}/{purchase.value}"
    assert is_of_gcp(offer) and not is_of_aws(offer)


def test_the_first_words_that_fit_say_what_a_line_is() -> None:
    kinds = (
        (re.compile("disk"), BillPart.EXTRAS, "disks"),
        (re.compile("d"), BillPart.BESIDE, "others"),
    )
    assert part_of("a disk", "service", kinds) == (BillPart.EXTRAS, "disks")
    assert part_of("data", "service", kinds) == (BillPart.BESIDE, "others")
    assert part_of("tape", "service", kinds) == (BillPart.BESIDE, "service")


def test_what_is_no_amount_is_refused() -> None:
    assert amount_of("-1.50") == Decimal("-1.5")
    for text in ("", "NaN", "Infinity", "$1", "None"):
        with pytest.raises(ValueError, match="is not an amount"):
            amount_of(text)
