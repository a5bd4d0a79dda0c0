from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app

OFFERS = """
offers:
  - {type: g5.12xlarge, purchase: reserved, max_instances: 2, until: 2100-01-01T00:00Z}
  - {type: g5.12xlarge, purchase: spot, reclaims_per_hour: 0.1, zone: use1-az1}
  - {id: own, devices: 2, device_kind: a10g, usd_per_hour: 1.2, network: 1GB/s}
prices_from: [{file: spot.csv, as_of: 2020-01-01}]
"""
PRICES = "instance_type,ondemand_usd_hr,spot_usd_hr,region,az_id\n"
PRICES += "g5.12xlarge,5.672,2.1,us-east-1,use1-az1\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "spot.csv").write_text(PRICES)
    (tmp_path / "offers.yaml").write_text(OFFERS)
    return tmp_path / "offers.yaml"


def told(file: Path, *options: str) -> str:
    words = ["offers", "--offers", str(file), *options]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "240"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_price_has_its_source_and_a_stale_one_is_called_so(file: Path) -> None:
    reserved, spot, own = told(file).splitlines()[1:]
    assert "paid already" in reserved and "until 2100-01-01" in reserved
    assert "spot.csv" in spot and "stale" in spot and "$2.10" in spot
    assert "0s ago" in own and "offers.yaml" in own and "stale" not in own


def test_a_rate_of_reclaims_is_shown(file: Path) -> None:
    reserved, spot, own = told(file).splitlines()[1:]
    assert "reclaimed 0.1 times an hour" in spot
    assert "reclaimed" not in reserved and "reclaimed" not in own


def test_the_same_for_scripts(file: Path) -> None:
    rows = json.loads(told(file, "--json"))["offers"]
    assert [row["is_stale"] for row in rows] == [False, True, False]
    assert rows[0]["offer"]["usd_per_hour"] == "0"


def test_names_and_prices_are_whole_at_eighty_columns(file: Path) -> None:
    result = CliRunner().invoke(app, ["offers", "--offers", str(file)], env={"COLUMNS": "80"})
    assert max(map(len, result.stdout.splitlines())) <= 80 and "…" not in result.stdout
    assert "zone" in result.stdout, "no id names its zone"
    assert "g5.12xlarge-reserved  4 x a10g" in result.stdout and "$2.10" in result.stdout


def test_spot_at_a_tenth_of_on_demand_is_told_as_on_demand(file: Path) -> None:
    file.write_text(
        "offers: [{type: g5.12xlarge, purchase: spot, reclaims_per_hour: 0, usd_per_hour: 0.5672}]"
    )
    (row,) = told(file).splitlines()[1:]
    assert "$5.67 " in row and "since $0.5672/h (offers.yaml) is 10% of it" in row


def test_zones_that_the_ids_name_have_no_column(file: Path) -> None:
    file.write_text(OFFERS.replace("zone: use1-az1", "zone: use1-az1, id: a/use1-az1/spot"))
    assert "zone" in told(file).splitlines()[0], "other offers need it"
    pool = "{id: gpu/g6/us-east-1a, zone: us-east-1a, devices: 1, device_kind: l4, "
    file.write_text(f"offers:\n  - {pool}usd_per_hour: 1, network: 1GB/s}}\n")
    heading, row = told(file).splitlines()
    assert heading.split() == ["offer", "devices", "$/h", "price"]
    assert row.split()[:5] == ["gpu/g6/us-east-1a", "1", "x", "l4", "$1.00"]
