from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoscaler.spec.offers_file as module
from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.market.catalogue import catalogue
from autoscaler.spec.offers_file import OffersFile, load_offers

NOW_SECONDS = 1_000.0
OFFICE = """\
offers:
  - id: office
    devices: 8
    device_kind: rtx2080ti
    usd_per_hour: $1.20
    network: 25Gbit/s
"""
PRICES = """\
instance_type,ondemand_usd_hr,spot_usd_hr,region,az_id
g5.12xlarge,5.672,2.1,us-east-1,use1-az1
g5.12xlarge,5.672,0.5672,us-east-1,use1-az2
g5.12xlarge,5.672,0.2,us-east-1,use1-az3
x9.large,10,4,us-east-1,use1-az1
"""


class Folder:
    """A folder with a price list, and files of offers as a test writes them."""

    def __init__(self, path: Path) -> None:
        self.file = path / "offers.yaml"
        (path / "spot.csv").write_text(PRICES, encoding="utf-8")
        (path / "broken.csv").write_text("a,b\n", encoding="utf-8")

    def load(self, text: str) -> OffersFile:
        self.file.write_text(text, encoding="utf-8")
        return load_offers(self.file, NOW_SECONDS)

    def refusal(self, text: str) -> str:
        with pytest.raises(SpecError) as refused:
            self.load(text)
        return str(refused.value).replace(f"{self.file.parent}/", "")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_example_of_the_module(folder: Folder) -> None:
    assert module.__doc__ is not None
    example = module.__doc__.split("::\n")[1].split("\n\nDefaults of an offer")[0]
    found = folder.load("\n".join(line.removeprefix("    ") for line in example.splitlines()))
    assert [offer.id for offer in found.offers] == [
        "g4dn.12xlarge-on-demand",
        "g5.12xlarge-spot",
        "p4d.24xlarge-reserved",
        "office",
    ]
    assert found.profile_kinds == {"g4dn.12xlarge-on-demand": "aws"}
    assert [limit.name for limit in found.limits] == [
        "gpus",
        "budget",
        "instances of g4dn.12xlarge-on-demand",
        "instances of p4d.24xlarge-reserved",
    ]
    assert found.limits[1].maximum == 50
    assert found.limits[1].offers == {"office", "g5.12xlarge-spot"}
    assert found.prices["g5.12xlarge-spot"].as_of_seconds == 1_784_505_600.0


def test_a_type_of_the_catalogue_is_enough(folder: Folder) -> None:
    found = folder.load("offers: [{type: g4dn.12xlarge}]")
    assert found.offers == (
        Offer(
            id="g4dn.12xlarge-on-demand",
            provider="aws",
            instance_type="g4dn.12xlarge",
            zone="us-east-1",
            purchase=Purchase.ON_DEMAND,
            devices=4,
            device_kind="t4",
            usd_per_hour=Decimal("3.912"),
            boot_seconds=180.0,
            network_bytes_per_second=6.25e9,
            minimum_billed_seconds=60,
        ),
    )
    assert found.prices["g4dn.12xlarge-on-demand"] == catalogue()["g4dn.12xlarge"].price
    assert found.limits == ()
    assert found.profile_kinds == {}


def test_what_is_reserved_costs_nothing_more_and_ends(folder: Folder) -> None:
    reserved = "{type: g5.12xlarge, purchase: reserved, max_instances: 2, until: 2h}"
    found = folder.load(f"offers: [{reserved}]")
    (offer,) = found.offers
    assert (offer.usd_per_hour, offer.is_paid) == (0, True)
    assert offer.until_seconds == NOW_SECONDS + 7200
    assert found.limits[0].maximum == 2
    assert found.prices[offer.id].source == "offers.yaml: paid already"
    partly = folder.load(f"offers: [{reserved.replace('until: 2h', 'usd_per_hour: 2')}]")
    assert (partly.offers[0].usd_per_hour, partly.offers[0].is_paid) == (2, False)


@pytest.mark.parametrize(
    ("offer", "problem"),
    [
        ("purchase: reserved", "set max_instances to the number reserved"),
        ("purchase: reserved, max_instances: 1, until: 1969-01-01T00:00Z", "write a future time"),
        ("purchase: reserved, max_instances: 1, reclaims_per_hour: 1", "is never reclaimed"),
        ("until: 2h", "on-demand has no end"),
    ],
)
def test_a_reservation_that_can_not_be(folder: Folder, offer: str, problem: str) -> None:
    assert problem in folder.refusal(f"offers: [{{type: g5.12xlarge, {offer}}}]")


def test_all_by_hand(folder: Folder) -> None:
    more = """\
    zone: cellar
    boot: 20s
    provider: own
    minimum_billed: 90.5s
    purchase: spot
    reclaims_per_hour: 0.25
    profile: rtx
    max_devices: 24
"""
    found = folder.load(OFFICE + more)
    assert found.offers == (
        Offer(
            id="office",
            provider="own",
            instance_type="office",
            zone="cellar",
            purchase=Purchase.SPOT,
            devices=8,
            device_kind="rtx2080ti",
            usd_per_hour=Decimal("1.20"),
            boot_seconds=20.0,
            network_bytes_per_second=25e9 / 8,
            reclaims_per_hour=0.25,
            minimum_billed_seconds=91,
        ),
    )
    own = Limit("devices of office", LimitUnit.DEVICES, 24, frozenset({"office"}))
    assert found.limits == (own,)
    assert found.profile_kinds == {"office": "rtx"}
    assert found.prices["office"].as_of_seconds == NOW_SECONDS
    assert found.prices["office"].source == "offers.yaml"


def test_every_type_of_the_catalogue_can_be_offered(folder: Folder) -> None:
    rows = "".join(f'  - {{type: "{name}"}}\n' for name in catalogue())
    assert len(folder.load("offers:\n" + rows).offers) == len(catalogue())


def test_a_profile_holds_for_all_of_a_kind(folder: Folder) -> None:
    found = folder.load("offers: [{type: g4dn.12xlarge}, {type: g4dn.xlarge, profile: aws}]")
    assert found.profile_kinds == {
        "g4dn.12xlarge-on-demand": "aws",
        "g4dn.xlarge-on-demand": "aws",
    }


@pytest.mark.parametrize("how", ["spot.csv", "[spot.csv]", "[{file: spot.csv}]"])
def test_prices_come_from_a_list(folder: Folder, how: str) -> None:
    spot = "type: g5.12xlarge, purchase: spot, reclaims_per_hour: 0"
    found = folder.load(
        f"prices_from: {how}\noffers:\n"
        f"  - {{id: one, zone: use1-az1, {spot}}}\n"
        f"  - {{id: two, zone: use1-az2, {spot}}}\n"
        f"  - {{id: by-hand, zone: use1-az2, usd_per_hour: 0.5672, {spot}}}\n"
        "  - {type: x9.large, zone: us-east-1, devices: 2, device_kind: t4, network: 3GB/s}\n"
    )
    prices = {offer.id: offer.usd_per_hour for offer in found.offers}
    assert prices == {
        "one": Decimal("2.1"),
        "two": Decimal("5.672"),
        "by-hand": Decimal("5.672"),
        "x9.large-on-demand": Decimal("10"),
    }
    assert found.prices["one"].as_of_seconds is None
    assert "not a market price" in found.prices["two"].source


def test_a_list_that_sells_it_there_goes_before_one_that_does_not(folder: Folder) -> None:
    (folder.file.parent / "other.csv").write_text(
        "instance_type,region,ondemand_usd_hr\ng5.12xlarge,eu-west-1,6.3\n", encoding="utf-8"
    )
    found = folder.load(
        "prices_from: [spot.csv, other.csv]\noffers: [{type: g5.12xlarge, zone: eu-west-1}]"
    )
    assert found.offers[0].usd_per_hour == Decimal("6.3")


def test_discounts_are_taken_off_lists_and_not_off_what_is_paid(folder: Folder) -> None:
    found = folder.load(
        "discounts:\n"
        '  - {provider: aws, type: "p5*", factor: 0.5, reason: agreement}\n'
        "  - {provider: aws, usd_per_hour: 1, reason: never reached by p5}\n"
        "offers: [{type: p5.48xlarge}, {type: p5.4xlarge, usd_per_hour: 6}]\n"
    )
    assert [offer.usd_per_hour for offer in found.offers] == [Decimal("27.520"), Decimal(6)]
    assert found.prices["p5.48xlarge-on-demand"].source.endswith("times 0.5: agreement")


SPOT = "type: g5.12xlarge, purchase: spot, reclaims_per_hour: 0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "offers.yaml: must be a mapping with at least offers"),
        ("offers: []", "offers.yaml:1: offers: is empty"),
        ("offers: [{tpye: t}]", 'offers.yaml:1: offers.0.tpye: .* did you mean "type"?'),
        ("offer: []", 'offers.yaml:1: offer: unknown key "offer": did you mean "offers"?'),
        ("offers:\n- {zone: x}", "offers.yaml:2: offers.0: needs a type of the catalogue"),
        (
            "offers:\n- type: g5.12xlage",
            'offers.yaml:2: offers.0.type: "g5.12xlage" is not in the catalogue: did you mean '
            '"g5.12xlarge"?; for your own type, set devices, device_kind, network, too',
        ),
        ("offers:\n- {id: a, devices: 2}", "offers.0.id: .*set device_kind, network, too"),
        (OFFICE.replace("$1.20", "0"), 'offers.yaml:5: offers.0.usd_per_hour: "0" is not'),
        (OFFICE.replace("$1.20", "-1"), 'offers.yaml:5: offers.0.usd_per_hour: "-1" is not'),
        (
            OFFICE.replace("    usd_per_hour: $1.20\n", ""),
            "offers.yaml:2: offers.0: the on-demand",
        ),
        (
            OFFICE.replace("25Gbit/s", "fast"),
            'offers.yaml:6: offers.0.network: "fast" is not a band',
        ),
        (OFFICE.replace("25Gbit/s", "0GB/s"), "offers.0.network: .* is not a bandwidth"),
        (OFFICE.replace("8", "0"), "offers.0.devices: must be at least 1"),
        (
            "offers: [{type: g5.12xlarge, usd_per_hour: 200}]",
            r"offers.0.usd_per_hour: \$200/h \(offers.yaml\) is more than 20 times off",
        ),
        ("offers: [{type: g5.12xlarge, devices: 8}]", "offers.0.devices: g5.12xlarge has 4"),
        ("offers: [{type: g5.12xlarge, device_kind: t4}]", "offers.0.device_kind: .* has a10g"),
        (
            "offers: [{type: g5.12xlarge, zone: eu-west-1}]",
            "offers.0.zone: the catalogue's price of g5.12xlarge is for us-east-1",
        ),
        (
            "offers: [{type: g5.12xlarge, purchase: rent}]",
            "purchase: must be 'on-demand', 'spot', 'flex-start' or 'reserved'",
        ),
        ("offers: [{type: g5.12xlarge, purchase: spot}]", "offers.0: spot can be reclaimed"),
        ("offers: [{type: g5.12xlarge, reclaims_per_hour: 1}]", "on-demand is never reclaimed"),
        (f"offers: [{{{SPOT}}}]", "offers.0: the spot price of g5.12xlarge is unknown: set"),
        (
            f"prices_from: spot.csv\noffers:\n- {{zone: use1-az9, {SPOT}}}",
            "offers.yaml:3: offers.0.zone: no spot price in use1-az9: name one of use1-az1",
        ),
        (
            f"prices_from: spot.csv\noffers:\n- {{zone: use1-az3, {SPOT}}}",
            r"offers.yaml:3: offers.0.zone: \$0.2/h \(.*spot.csv:4\) is more than 20 times off",
        ),
        (
            f"prices_from: spot.csv\noffers:\n- {{{SPOT}}}",
            "offers.yaml:3: offers.0: spot in us-east-1 has a price in each zone: name one of us",
        ),
        ("prices_from: no.csv\n" + OFFICE, "offers.yaml:1: prices_from.*: no.csv: no such file"),
        ("prices_from: broken.csv\n" + OFFICE, "prices_from.*: broken.csv:1: is not a price list"),
        (
            "prices_from:\n- {file: spot.csv, as_of: May}\n" + OFFICE,
            'offers.yaml:2: prices_from.0.as_of: "May" is not a date',
        ),
        (OFFICE + "    max_devices: 7\n", "offers.yaml:7: offers.0.max_devices: 7 is below the 8"),
        (OFFICE + "    max_devices: 8\n    max_instances: 1\n", "offers.0: has two limits"),
        (
            "offers:\n- {type: g5.12xlarge, profile: a}\n- {type: g5.xlarge, profile: b}",
            'offers.yaml:3: offers.1.profile: "b" differs from "a", the profile of a10g above',
        ),
        (
            "offers:\n- {type: g5.xlarge}\n- {type: g5.xlarge, zone: us-east-1b}",
            'offers.yaml:3: offers.1: "g5.xlarge-on-demand" is given twice: use a different id',
        ),
        (OFFICE + "limits: [{name: a}]", "offers.yaml:7: limits.0: needs exactly one of"),
        (OFFICE + "limits: [{name: a, devices: 8, instances: 1}]", "limits.0: needs exactly one"),
        (OFFICE + "limits: [{name: a, devices: 7}]", "limits.0.devices: 7 is below the 8 of one"),
        (
            OFFICE + "limits: [{name: a, usd_per_hour: 1}]",
            "usd_per_hour: 1 is below the 1.2 of one",
        ),
        (
            OFFICE + "limits: [{name: a, devices: 9, offers: ofice}]",
            'offers.yaml:7: limits.0.offers: there is no offer "ofice": did you mean "office"?',
        ),
        (
            OFFICE + "limits:\n- {name: a, devices: 8}\n- {name: a, devices: 9}",
            'offers.yaml:9: limits.1.name: "a" is given twice',
        ),
        (
            OFFICE + "discounts: [{provider: aws, reason: x}]",
            "discounts.0: needs a factor or usd_per_hour",
        ),
        (
            OFFICE + "discounts: [{provider: aws, reason: x, factor: 20%}]",
            'discounts.0.factor: "20%" is not a number: write 0.8 for 20 % off',
        ),
        (
            "discounts: [{provider: aws, reason: x, usd_per_hour: 0.01}]\n"
            "offers:\n- type: p5.48xlarge",
            r"offers.yaml:3: offers.0.type: \$0.01/h \(x\) is more than 20 times off",
        ),
    ],
)
def test_what_is_refused(folder: Folder, text: str, message: str) -> None:
    refusal = folder.refusal(text)
    assert re.search(message.replace("?", r"\?"), refusal), refusal


def test_all_faults_of_a_part_are_told_at_once(folder: Folder) -> None:
    refusal = folder.refusal("offers:\n- type: nothing\n- {type: g5.xlarge, devices: 9}\n")
    assert [line.split(": ")[:2] for line in refusal.splitlines()] == [
        ["offers.yaml:2", "offers.0.type"],
        ["offers.yaml:3", "offers.1.devices"],
    ]


def test_a_list_whose_one_offer_is_wrong_is_not_called_empty(folder: Folder) -> None:
    (refusal,) = folder.refusal(f"{OFFICE}    max_instances: -2\n").splitlines()
    assert "offers.0.max_instances: must be at least 1" in refusal


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"offers.yaml: no such file: name an offers file"):
        load_offers(tmp_path / "offers.yaml", NOW_SECONDS)


@settings(max_examples=60, deadline=None)
@given(usd=st.decimals("0.0001", "1000", places=4), devices=st.integers(1, 16))
def test_what_is_written_is_what_is_offered(
    tmp_path_factory: pytest.TempPathFactory, usd: Decimal, devices: int
) -> None:
    folder = Folder(tmp_path_factory.mktemp("offers"))
    found = folder.load(
        f"offers: [{{id: a, devices: {devices}, device_kind: t4, network: 1GB/s, "
        f"usd_per_hour: {usd:f}, max_instances: 3}}]"
    )
    (offer,), (limit,) = found.offers, found.limits
    assert (offer.usd_per_hour, offer.devices) == (usd, devices)
    assert limit.use(offer) * 3 == limit.maximum
