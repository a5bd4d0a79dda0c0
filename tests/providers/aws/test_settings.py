"""Documents of Terraform, and errors for those that can't be used."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest

from autoscaler.domain.errors import NotFound, PermissionDenied, SpecError
from autoscaler.domain.offer import Purchase
from providers.aws.reading import open_session, parse_settings, read_settings
from providers.cloud.price_list import read_price_table
from tests.fakes.aws.faults import Fault
from tests.providers.aws.cloud import AwsWorld

GOOD: dict[str, Any] = {
    "schema": 1,
    "deployment": "prod",
    "regions": {
        "us-east-1": {
            "subnets": {"us-east-1a": "subnet-0a1b2c3d", "us-east-1b": "subnet-0a1b2c3e"},
            "user_data": "s3://castor-prod/user-data",
            "queue_url": "https://sqs.us-east-1.amazonaws.com/123456789012/castor",
        }
    },
    "pools": {
        "gpu": {
            "region": "us-east-1",
            "launch_template": {"id": "lt-0123456789abcdef0", "version": 3},
            "instance_types": ["g5.xlarge", "g5.2xlarge"],
            "purchases": ["spot", "on-demand"],
            "max_instances": 16,
            "max_usd_per_hour": 40,
            "boot": "4m",
            "boot_minutes": 45,
        }
    },
    "max_usd_per_hour": "50.5",
    "tags": {"team": "vision"},
}


def test_a_whole_document_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(GOOD))
    settings = read_settings(str(path))
    pool = settings.pools["gpu"]
    assert (pool.launch_template.version, pool.boot) == ("3", 240.0)
    assert pool.boot_minutes == 45
    assert pool.purchases == (Purchase.SPOT, Purchase.ON_DEMAND)
    assert settings.zones_of(pool) == ("us-east-1a", "us-east-1b")
    assert read_price_table(settings.prices_from) is None


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", 2, "schema: this Castor reads schema 1, not 2"),
        ("deployment", "Prod!", 'deployment: "Prod!" is not valid'),
        ("regions", {}, "regions"),
        ("regions", {"us east 1": {}}, "regions.us east 1"),
        ("regions.us-east-1.user_data", "bucket", "regions.us-east-1.user_data"),
        ("regions.us-east-1.subnets.us-east-1a", "vpc-1", "regions.us-east-1.subnets.us-east-1a"),
        ("pools.gpu.region", "us-west-2", "pools.gpu.region: us-west-2 is not in regions"),
        ("pools.gpu.zones", ["us-east-1f"], "pools.gpu.zones: us-east-1f has no subnet"),
        ("pools.gpu.launch_template.id", "template", "pools.gpu.launch_template.id"),
        ("pools.gpu.launch_template.version", "$Latest", "pools.gpu.launch_template.version"),
        ("pools.gpu.instance_types", [], "pools.gpu.instance_types: is empty"),
        (
            "pools.gpu.purchases",
            "flex-start",
            "flex-start is not sold here: write",
        ),
        ("pools.gpu.purchases", "reserved", "pools.gpu: reservation is missing"),
        ("pools.gpu.purchases", ["reserved", "spot"], "pools.gpu: purchases: reserved stands"),
        ("pools.gpu.reservation", "cr-01234567", "pools.gpu: reservation: is for purchases ="),
        ("pools.gpu.reservation", "odcr", 'pools.gpu.reservation: "odcr" is not valid'),
        ("pools.gpu.capacity_block", True, "pools.gpu: capacity_block: is for a reservation"),
        ("pools.gpu.boot_minutes", 2, "pools.gpu.boot_minutes: must be at least 3"),
        ("pools.gpu.boot_minutes", 121, "pools.gpu.boot_minutes: must be at most 120"),
        ("pools.gpu.max_instances", 0, "pools.gpu.max_instances: must be at least 1"),
        ("pools.gpu.extras_usd_per_hour", -0.1, "pools.gpu.extras_usd_per_hour: "),
        ("pools.gpu.extras_usd_per_hour", "a lot", '"a lot" is not an amount: write it like 0.03'),
        ("pools.gpu.max_usd_per_hour", "free", "pools.gpu.max_usd_per_hour"),
        ("max_usd_per_hour", None, "max_usd_per_hour: is required"),
        ("max_instance", 3, 'unknown key "max_instance"'),
        ("tags", {"castor:job": "x"}, '"castor:job" begins with a reserved prefix'),
        ("tags", {f"k{number}": "v" for number in range(41)}, "41 tags are too many"),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(path: str, value: object, said: str) -> None:
    document = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    place = document
    for part in parents:
        place = place[part]
    place[last] = value
    with pytest.raises(SpecError) as caught:
        parse_settings(json.dumps(document, indent=1), "pools.json")
    assert said in str(caught.value)
    assert str(caught.value).startswith("pools.json:")


@pytest.mark.parametrize(
    "change",
    [{}, {"zones": ["us-east-1a"], "instance_types": ["g5.xlarge", "g5.2xlarge"]}],
)
def test_a_reservation_is_of_one_type_in_one_zone(change: dict[str, Any]) -> None:
    document = json.loads(json.dumps(GOOD))
    reserved = {"purchases": "reserved", "reservation": "cr-01234567"}
    document["pools"]["gpu"] |= {"instance_types": ["g5.xlarge"], **reserved, **change}
    with pytest.raises(SpecError, match="a reservation has one type in one zone: name one of"):
        parse_settings(json.dumps(document), "pools.json")


@pytest.mark.parametrize("text", ["", "[]", "{", "3"])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"pools\.json"):
        parse_settings(text, "pools.json")


@pytest.mark.parametrize(("value", "usd"), [(0, "0"), ("0.026918", "0.026918"), (1, "1")])
def test_extras_are_an_amount_or_nothing(value: object, usd: str) -> None:
    document = json.loads(json.dumps(GOOD))
    document["pools"]["gpu"]["extras_usd_per_hour"] = value
    settings = parse_settings(json.dumps(document), "pools.json")
    assert settings.pools["gpu"].extras_usd_per_hour == Decimal(usd)


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(SpecError, match=r"nowhere\.json: no such file: name a file of pools"):
        read_settings("nowhere.json")


def test_a_parameter_of_ssm_is_read(world: AwsWorld) -> None:
    text = json.dumps(world.document)
    name = "/castor/test/pools"
    world.client("ssm").put_parameter(Name=name, Value=text, Type="SecureString")
    settings = read_settings(f"ssm:{name}", world.session, world.url)
    assert settings == world.settings


def test_a_parameter_that_is_missing_is_named(world: AwsWorld) -> None:
    with pytest.raises(NotFound, match="--pools ssm:/castor/no/pools: there is no such parameter"):
        read_settings("ssm:/castor/no/pools", world.session, world.url)


def test_a_parameter_that_may_not_be_read_is_told(world: AwsWorld) -> None:
    denied = Fault("GetParameter", code="AccessDeniedException", status=400)
    world.account.faults.add(denied)
    with pytest.raises(PermissionDenied, match="allow GetParameter to these credentials"):
        read_settings("ssm:/castor/test/pools", world.session, world.url)


def test_a_profile_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(PermissionDenied, match=r"AWS_PROFILE: .*no-such-profile"):
        open_session()


def test_the_document_in_the_documentation_is_one() -> None:
    text = (Path(__file__).parents[3] / "docs" / "aws.md").read_text()
    (document,) = re.findall(r"```json\n(.+?)```", text, re.DOTALL)
    settings = parse_settings(document, "docs/aws.md")
    assert settings.zones_of(settings.pools["gpu"]) == ("us-east-1a",)


def test_a_parameter_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    with pytest.raises(SpecError, match="set AWS_REGION"):
        read_settings("ssm:/castor/test/pools", boto3.session.Session())
