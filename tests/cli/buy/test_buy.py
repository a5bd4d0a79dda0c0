"""`castor buy`: Capacity Blocks of a fake AWS, and how one is bought and by whom."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from click.testing import Result
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, PermissionDenied, ProviderError, SpecError
from providers.aws.reading import parse_settings
from tests.fakes.aws.account import Account
from tests.fakes.aws.faults import Fault, When
from tests.fakes.aws.reservations import FakeBlock
from tests.fakes.aws.server import FakeAws

KEY = "AKIABUY"
FOUND = ("--type", "p5.48xlarge", "--instances", "2", "--days", "2")
START_SECONDS = 2_000_000_000.0  # in 2033
POOL: dict[str, Any] = {
    "region": "us-east-1",
    "launch_template": {"id": "lt-0123456789abcdef0", "version": 1},
    "instance_types": ["p5.48xlarge"],
    "purchases": ["on-demand", "spot"],
    "zones": ["us-east-1a"],
    "max_instances": 8,
    "max_usd_per_hour": "900",
}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeAws]:
    server = FakeAws(SystemClock())
    yield server
    server.close()


@pytest.fixture
def account(fake: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Set the command's environment; return an account with two blocks for sale."""
    told = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": "secret", "ENDPOINT_URL": fake.url}
    for name, value in told.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    found = fake.proxy.renew(KEY, SystemClock())
    for block in (
        FakeBlock("cb-dear", "p5.48xlarge", "us-east-1a", 2, START_SECONDS, 48, "24576.0000"),
        FakeBlock("cb-cheap", "p5.48xlarge", "us-east-1b", 2, START_SECONDS, 48, "15360.125"),
        FakeBlock("cb-long", "p5.48xlarge", "us-east-1b", 2, START_SECONDS, 72, "9999"),
    ):
        found.blocks[block.id] = block
    return found


@pytest.fixture
def pools(tmp_path: Path, account: Account) -> str:
    region = {"subnets": {"us-east-1a": "subnet-0a1b2c3d"}, "user_data": "s3://castor/user-data"}
    document = {
        "schema": 1,
        "deployment": "prod",
        "regions": {"us-east-1": region},
        "pools": {"gpu": POOL},
        "max_usd_per_hour": "900",
        "tags": {"team": "vision"},
    }
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(document))
    return str(path)


def buy(pools: str, *words: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["buy", pools, *FOUND, *words], input=typed)


def printed(pools: str, *words: str) -> str:
    result = buy(pools, *words)
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(pools: str, *words: str, typed: str | None = None) -> CastorError:
    error = buy(pools, *words, typed=typed).exception
    assert isinstance(error, CastorError), error
    return error


def test_blocks_are_listed_beside_the_pools_prices(pools: str, account: Account) -> None:
    heading, cheap, dear, *prices = printed(pools).splitlines()
    assert heading.split("  ")[0] == "offering"
    assert cheap.split() == [
        *("cb-cheap", "us-east-1b", "2033-05-18", "03:33", "2033-05-20", "03:33"),
        *("15360.125", "20.00"),
    ]
    assert dear.split()[-2:] == ["24576.00", "32.00"]
    assert prices == [
        "A GPU-hour of p5.48xlarge, spot: $2.13 (gpu/p5.48xlarge/us-east-1a/spot); "
        "every block costs more",
        "A GPU-hour of p5.48xlarge, on-demand: $6.88 (gpu/p5.48xlarge/us-east-1a/on-demand); "
        "every block costs more",
    ]
    assert account.calls["PurchaseCapacityBlock"] == 0


def test_the_listing_says_from_which_use_on_a_block_costs_less(
    pools: str, account: Account
) -> None:
    found = account.blocks["cb-cheap"]
    account.blocks["cb-cheap"] = replace(found, fee="2641.92")
    *_, spot, on_demand = printed(pools).splitlines()
    assert spot.endswith("every block costs more")
    assert on_demand.endswith("cb-cheap costs less if used for more than 50% of its time")


def test_the_same_for_scripts(pools: str) -> None:
    cheap, dear = json.loads(printed(pools, "--json"))
    assert (cheap["id"], cheap["usd"], cheap["devices"]) == ("cb-cheap", "15360.125", 8)
    assert dear["zone"] == "us-east-1a"


def test_where_the_pools_sell_nothing_it_is_said(pools: str, account: Account) -> None:
    account.list_prices = {}
    told = printed(pools)
    assert told.count("not sold by these pools") == 2


def test_reasons_why_the_pools_sell_less_are_no_log_of_the_command(
    pools: str, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.list_prices = {}
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("providers"), "handlers", [])
    assert buy(pools).stderr == ""
    account.faults.add(Fault("DescribeInstanceTypeOfferings", code="InternalError", times=99))
    assert "The pools' prices are unknown: us-east-1: Describe" in printed(pools)


def test_times_narrow_the_search(pools: str) -> None:
    told = printed(pools, "--from", "2033-05-18T03:34Z")
    assert "no block of 2 x p5.48xlarge for 48 hours is sold" in told
    assert "cb-cheap" in printed(pools, "--from", "24h", "--to", "2033-05-20T03:34Z")


@pytest.mark.parametrize("typed", ["15360.125\n", None])
def test_the_price_is_what_buys_a_block(pools: str, account: Account, typed: str | None) -> None:
    words = () if typed else ("--yes", "15360.125")
    result = buy(pools, "--offering", "cb-cheap", *words, typed=typed)
    assert result.exit_code == 0, result.output
    ((name, bought),) = account.reservations.items()
    assert (bought.kind, bought.total, bought.is_block) == ("p5.48xlarge", 2, True)
    assert bought.tags == {"team": "vision", "castor:deployment": "prod"}
    assert f"bought {name} for $15360.125" in result.stdout
    for line in (f'reservation      = "{name}"', "capacity_block   = true", '["us-east-1b"]'):
        assert line in result.stdout


def test_the_pool_that_is_printed_is_one_that_castor_reads(pools: str, account: Account) -> None:
    told = json.loads(printed(pools, "--offering", "cb-dear", "--yes", "24576.00", "--json"))
    fields = dict(
        line.split("#")[0].split(" = ") for line in told["pool_input"].splitlines()[1:-1]
    )
    values = {name.strip(): json.loads(value) for name, value in fields.items()}
    del values["image_id"]
    document = json.loads(Path(pools).read_text())
    own = {"region": "us-east-1", "launch_template": POOL["launch_template"]}
    document["pools"]["block"] = {**own, **values}
    pool = parse_settings(json.dumps(document), "pools.json").pools["block"]
    assert pool.reservation == told["reservation"] and pool.capacity_block


@pytest.mark.parametrize("amount", ["15360.12", "15360.13", "yes", "24576", ""])
def test_any_other_amount_buys_nothing(pools: str, account: Account, amount: str) -> None:
    words = ("--yes", amount) if amount else ()
    typed = None if amount else "y\n"
    error = failed(pools, "--offering", "cb-cheap", *words, typed=typed)
    assert "--offering: " in str(error)
    assert "is not the price, 15360.125: nothing was bought" in str(error)
    assert account.calls["PurchaseCapacityBlock"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--offering", "cb-none", "--yes", "1"), "the search finds cb-cheap, cb-dear"),
        (("--yes", "1"), "is an answer to --offering"),
        (("--type", "g99.large"), "g99.large is unknown"),
        (("--days", "15"), "15 days are neither"),
        (("--days", "189"), "189 days are neither"),
        (("--instances", "65"), "a block has at most 64 instances"),
        (("--from", "soon"), "--from"),
        (("--from", "48h", "--to", "24h"), "is before --from"),
    ],
)
def test_what_is_wrong_is_named(
    pools: str, account: Account, words: tuple[str, ...], said: str
) -> None:
    error = failed(pools, *words)
    assert isinstance(error, SpecError) and said in str(error)
    assert account.calls["PurchaseCapacityBlock"] == 0


def test_two_weeks_and_whole_weeks_are_sold(pools: str) -> None:
    for days in ("14", "21", "182"):
        assert "is sold" in printed(pools, "--days", days)


def test_who_may_not_is_told_which_permission_is_lacking(pools: str, account: Account) -> None:
    for action, words in (
        ("DescribeCapacityBlockOfferings", ()),
        ("PurchaseCapacityBlock", ("--offering", "cb-cheap", "--yes", "15360.125")),
    ):
        account.faults.add(Fault(action, code="UnauthorizedOperation", status=403))
        error = failed(pools, *words)
        assert isinstance(error, PermissionDenied)
        assert f"allow ec2:{action} to your own credentials" in str(error)
    assert not account.reservations


def test_a_lost_answer_may_have_bought_a_block(pools: str, account: Account) -> None:
    """Send the order once, because a second order would buy a second block."""
    account.faults.add(Fault("PurchaseCapacityBlock", When.LOST_AFTER))
    error = failed(pools, "--offering", "cb-cheap", "--yes", "15360.125")
    assert type(error) is ProviderError
    assert "look at the account's capacity reservations before you buy again" in str(error)
    assert account.calls["PurchaseCapacityBlock"] == 1 and len(account.reservations) == 1


def test_a_block_that_has_been_sold_meanwhile_is_not_bought(pools: str, account: Account) -> None:
    code = "InvalidCapacityBlockOfferingIdExpired"
    account.faults.add(Fault("PurchaseCapacityBlock", code=code, status=400))
    error = failed(pools, "--offering", "cb-cheap", "--yes", "15360.125")
    assert code in str(error) and not account.reservations


@pytest.mark.parametrize("change", [{"currency": "CNY"}, {"segments": 2}])
def test_what_is_no_plain_block_in_dollars_is_not_sold(
    pools: str, account: Account, change: dict[str, Any]
) -> None:
    facts = ("cb-odd", "p5.48xlarge", "us-east-1a", 2, START_SECONDS, 48, "1")
    account.blocks["cb-odd"] = FakeBlock(*facts, **change)
    if "currency" in change:
        assert "a price in CNY, not USD" in str(failed(pools))
    else:
        assert "cb-odd" not in printed(pools)


def test_google_s_reservations_are_bought_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    path.write_text(json.dumps({"cloud": "gcp", "project": "p"}))
    assert "buys Capacity Blocks of EC2 only" in str(failed(str(path)))
