from __future__ import annotations

import csv
import os
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Purchase
from autoscaler.market.catalogue import catalogue
from autoscaler.market.price_table import PriceTable, is_in_region, parse_price_table
from autoscaler.market.prices import Price, RefusedPrice

ON_DEMAND, SPOT = Purchase.ON_DEMAND, Purchase.SPOT
BY_ZONE = """\
instance_type,gpu,gpu_count,ondemand_usd_hr,spot_usd_hr,region,az_id
p3.2xlarge,V100,1,3.06,0.4995,us-east-1,use1-az1
p3.2xlarge,V100,1,3.06,0.4803,us-east-1,use1-az2
p3.2xlarge,V100,1,3.06,,us-east-1,use1-az3
p3.2xlarge,V100,1,3.2,0.32,us-west-2,usw2-az1
p3.2xlarge,V100,1,61.3,0.01,moon-1,moon1-az1
p5e.48xlarge,H200,8,,17.4812,us-east-2,use2-az3
"""
BY_REGION = """\
machine_type,region,ondemand_usd_hr,spot_usd_hr
g2-standard-4,us-central1,0.7068,0.3973
"""


def table(text: str = BY_ZONE) -> PriceTable:
    return parse_price_table(text, "prices.csv", 50.0)


def reason(answer: Price | RefusedPrice) -> str:
    assert isinstance(answer, RefusedPrice)
    return answer.reason


def test_a_price_in_its_zone() -> None:
    assert table().price("p3.2xlarge", "use1-az2", SPOT, None) == Price(
        Decimal("0.4803"), 50.0, "prices.csv:3"
    )
    assert "p3.2xlarge" in table()
    assert "p3" not in table()


@pytest.mark.parametrize("zone", ["use1-az3", "us-east-1", "us-east-1b"])
def test_on_demand_is_one_price_in_a_region(zone: str) -> None:
    answer = table().price("p3.2xlarge", zone, ON_DEMAND, None)
    assert isinstance(answer, Price)
    assert answer.usd_per_hour == Decimal("3.06")


@pytest.mark.parametrize("zone", ["us-central1", "us-central1-a"])
@pytest.mark.parametrize(("purchase", "usd"), [(ON_DEMAND, "0.7068"), (SPOT, "0.3973")])
def test_a_table_by_region_holds_in_its_zones(zone: str, purchase: Purchase, usd: str) -> None:
    answer = table(BY_REGION).price("g2-standard-4", zone, purchase, None)
    assert isinstance(answer, Price)
    assert answer.usd_per_hour == Decimal(usd)


def test_regions_are_not_mixed_up() -> None:
    assert not is_in_region("us-east1", "us-east-1")
    assert not is_in_region("us-east-10", "us-east-1")
    assert not is_in_region("europe-west12", "europe-west1")


def test_a_tenth_of_on_demand_there_is_no_signal() -> None:
    answer = table().price("p3.2xlarge", "usw2-az1", SPOT, None)
    assert isinstance(answer, Price)
    assert answer.usd_per_hour == Decimal("3.2")


def test_what_nobody_sells() -> None:
    prices = table()
    assert "name one of moon1-az1, use1-az1, use1-az2, usw2-az1" in reason(
        prices.price("p3.2xlarge", "use1-az3", SPOT, None)
    )
    assert "name one of use1-az1 ($0.4995), use1-az2 ($0.4803)" in reason(
        prices.price("p3.2xlarge", "us-east-1", SPOT, None)
    )
    assert "no spot price in us-east-1b" in reason(
        prices.price("p3.2xlarge", "us-east-1b", SPOT, None)
    )
    assert reason(prices.price("p5e.48xlarge", "use2-az3", ON_DEMAND, None)) == (
        "no on-demand price in use2-az3"
    )
    assert "name one of moon-1, us-east-1, us-west-2" in reason(
        prices.price("p3.2xlarge", "eu-west-1", ON_DEMAND, None)
    )


def test_absurd_prices_are_refused() -> None:
    reference = catalogue()["p3.2xlarge"].price
    assert "20 times off" in reason(table().price("p3.2xlarge", "moon-1", ON_DEMAND, reference))
    assert "20 times off" in reason(table().price("p3.2xlarge", "moon1-az1", SPOT, reference))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "prices.csv:1: is not a price list: it has no column instance_type or machine_type"),
        ("instance_type,ondemand_usd_hr\n", "prices.csv:1: .*no column region"),
        ("instance_type,region\n", "no column ondemand_usd_hr or spot_usd_hr"),
        (BY_REGION + "g2,x,much,1\n", 'prices.csv:3: ondemand_usd_hr: "much" is not a price'),
        (BY_REGION + "g2,x\n", "prices.csv:3: line: must have as many values"),
        (BY_REGION + "g2,x,1,1,1\n", "prices.csv:3: line: must have as many values"),
        (BY_REGION + ",x,1,1\n", "prices.csv:3: machine_type: is empty"),
        (BY_REGION + "g2,,1,1\n", "prices.csv:3: region: is empty"),
        (BY_REGION + 'g2,"x"y,1,1\n', "prices.csv:3: is not valid CSV"),
        (BY_REGION + "g2,x,1,1\n" * 2, "prices.csv: g2 in x is listed 2 times"),
    ],
)
def test_what_is_no_price_list(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        table(text)


def test_published_lists() -> None:
    """Every published price of a type in the catalogue is read, and none is taken for absurd."""
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        pytest.skip("CASTOR_DATA is not set: no price lists")
    believed = 0
    for path in sorted((Path(data) / "prices").glob("*.csv")):
        text = path.read_text()
        prices = parse_price_table(text, path.name, None)
        for row in csv.DictReader(text.splitlines()):
            known = catalogue().get(row.get("instance_type") or row.get("machine_type", ""))
            if known is None:
                continue
            place = row.get("az_id") or row["region"]
            for purchase, column in ((ON_DEMAND, "ondemand_usd_hr"), (SPOT, "spot_usd_hr")):
                answer = prices.price(known.name, place, purchase, known.price)
                assert isinstance(answer, Price) is bool(row.get(column)), answer
                believed += isinstance(answer, Price)
    assert believed > 700
