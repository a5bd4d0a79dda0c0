"""Offers, their prices and their limits."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import requests
from google.oauth2.credentials import Credentials as PersonalCredentials

from autoscaler.domain.errors import QuotaExceeded
from autoscaler.domain.offer import Limit, Purchase
from providers.cloud.price_list import read_price_table
from providers.gcp.provider import GcpProvider
from providers.gcp.records import Records
from providers.gcp.session import Session
from tests.conformance.provider import OURS
from tests.fakes.faults import Fault
from tests.providers.gcp.cloud import QUICK, SMALL, SMALL_SPOT, GcpWorld

SKUS = "cloudbilling.services.skus.list"
LISTED = Decimal("0.706824")  # 4 cores and 16 GiB of a G2, and an L4


def prices(provider: GcpProvider) -> dict[str, Decimal]:
    return {offer.id: offer.usd_per_hour for offer in provider.offers()}


def limits(provider: GcpProvider) -> dict[str, Limit]:
    return {limit.name: limit for limit in provider.limits()}


def test_each_type_zone_and_purchase_is_an_offer(world: GcpWorld) -> None:
    offers = {offer.id: offer for offer in world.connect().offers()}
    assert len(offers) == 2 * 2 * 2
    offer = offers[SMALL_SPOT]
    assert (offer.devices, offer.device_kind, offer.provider) == (1, "l4", "gcp")
    assert (offer.purchase, offer.zone) == (Purchase.SPOT, "us-central1-a")
    assert offer.reclaims_per_hour > 0 and offers[SMALL].reclaims_per_hour == 0


def test_prices_are_cloud_billings_sums_of_parts(world: GcpWorld) -> None:
    found = {offer.id: offer for offer in world.connect().offers()}
    assert found[SMALL].usd_per_hour == LISTED
    spot = 4 * Decimal("0.014035") + 16 * Decimal("0.001644") + Decimal("0.314555")
    assert found[SMALL_SPOT].usd_per_hour == spot
    assert found[SMALL].price_source == "Cloud Billing catalogue"


def test_an_account_asks_for_prices_in_its_own_name(world: GcpWorld) -> None:
    """Name no quota project, which would need a permission outside the module's roles."""
    provider = world.connect()
    assert prices(provider)[SMALL_SPOT] < prices(provider)[SMALL]
    assert provider.condition().troubles == ()


@pytest.mark.parametrize("may_use", [True, False])
def test_a_person_names_the_project_to_be_charged(world: GcpWorld, may_use: bool) -> None:
    """Otherwise it would be gcloud's own, where Cloud Billing is not enabled."""
    world.session = Session(PersonalCredentials("ya29.ada"), world.fake.url)
    if may_use:
        world.project.permissions.add("serviceusage.services.use")
    provider = world.connect()
    assert (prices(provider)[SMALL_SPOT] < prices(provider)[SMALL]) is may_use
    told = " ".join(provider.condition().troubles)
    assert (f"a person needs serviceusage.services.use in {world.name}" in told) is not may_use


def test_where_cloud_billing_is_silent_the_catalogue_has_prices(world: GcpWorld) -> None:
    """Spot then counts as much as on demand, which is the most that it costs."""
    world.faults.add(Fault(SKUS, code="forbidden", status=403, times=None))
    provider = world.connect()
    found = {offer.id: offer for offer in provider.offers()}
    assert found[SMALL].usd_per_hour == Decimal("0.706832255") == found[SMALL_SPOT].usd_per_hour
    assert "no spot price is known" in found[SMALL_SPOT].price_source
    (trouble,) = provider.condition().troubles
    assert (
        trouble.startswith("prices may be old") and "enable cloudbilling.googleapis.com" in trouble
    )


def test_what_has_no_price_is_no_offer(world: GcpWorld) -> None:
    """The catalogue's prices are of another region."""
    world.faults.add(Fault(SKUS, code="forbidden", status=403, times=None))
    region = world.document["regions"].pop("us-central1")
    world.document["regions"]["europe-west4"] = {**region, "zones": ["europe-west4-a"]}
    world.document["pools"]["gpu"]["region"] = "europe-west4"
    provider = world.connect()
    assert list(provider.offers()) == []
    reason = provider.condition().left_out["gpu/g2-standard-4/europe-west4-a/spot"]
    assert "the price of g2-standard-4 in europe-west4 is unknown" in reason


def test_an_absurd_price_is_no_offer(world: GcpWorld) -> None:
    title = "Nvidia L4 GPU running in Americas"
    world.project.prices[title] = Decimal(500)
    provider = world.connect()
    assert SMALL not in prices(provider)
    assert "20 times off" in provider.condition().left_out[SMALL]


def test_the_owners_list_comes_first(world: GcpWorld, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(
        "machine_type,region,ondemand_usd_hr,spot_usd_hr\ng2-standard-4,us-central1,0.5,0.2\n"
    )
    world.document["prices_from"] = str(path)
    settings = world.settings
    provider = GcpProvider(
        settings,
        OURS,
        world.clock,
        world.session,
        Records(world.kept, OURS),
        patience=QUICK,
        table=read_price_table(settings.prices_from),
    )
    found = prices(provider)
    assert (found[SMALL], found[SMALL_SPOT]) == (Decimal("0.5"), Decimal("0.2"))


def test_extras_are_in_the_price(world: GcpWorld) -> None:
    world.document["pools"]["gpu"]["extras_usd_per_hour"] = "0.03"
    assert prices(world.connect())[SMALL] == LISTED + Decimal("0.03")


def test_n1_is_sold_with_the_accelerators_of_its_pool(world: GcpWorld) -> None:
    world.document["pools"]["gpu"] |= {
        "machine_types": ["n1-standard-8"],
        "accelerator": {"type": "nvidia-tesla-t4", "count": 1},
    }
    offers = {offer.id: offer for offer in world.connect().offers()}
    offer = offers["gpu/n1-standard-8+1xt4/us-central1-a/on-demand"]
    assert (offer.devices, offer.device_kind) == (1, "t4")
    assert offer.usd_per_hour == pytest.approx(Decimal("0.73"), abs=Decimal("0.001"))


def test_a_type_that_a_zone_lacks_is_left_out(world: GcpWorld) -> None:
    world.document["pools"]["gpu"]["machine_types"] = ["a3-highgpu-1g", "e2-standard-4"]
    provider = world.connect()
    found = prices(provider)
    assert "gpu/a3-highgpu-1g/us-central1-a/spot" in found
    left_out = provider.condition().left_out
    assert "not available" in left_out["gpu/a3-highgpu-1g/us-central1-b/spot"]
    assert "gpu/e2-standard-4/us-central1-a/spot" in left_out


@pytest.mark.parametrize(
    ("machine_type", "sold"),
    [
        ("a3-highgpu-1g", {"spot", "flex-start"}),
        ("a3-highgpu-8g", {"spot", "on-demand", "flex-start"}),
        ("g2-standard-4", {"spot", "on-demand", "flex-start"}),
    ],
)
def test_what_google_does_not_sell_is_left_out_and_would_be_refused(
    world: GcpWorld, machine_type: str, sold: set[str]
) -> None:
    world.document["pools"]["gpu"] |= {
        "machine_types": [machine_type],
        "purchases": ["spot", "on-demand", "flex-start"],
        "max_usd_per_hour": 200,
    }
    world.document["max_usd_per_hour"] = 200
    world.project.quotas.clear()
    provider = world.connect()
    ids = {f"gpu/{machine_type}/us-central1-a/{word}" for word in ("spot", "on-demand")}
    ids.add(f"gpu/{machine_type}/us-central1-a/flex-start")
    offered = {offer.purchase.value for offer in provider.offers()}
    assert offered == sold
    for offer in ids - {f"gpu/{machine_type}/us-central1-a/{word}" for word in sold}:
        reason = provider.condition().left_out[offer]
        assert "Google sells a3-highgpu-1g on flex-start and spot only, not on on-demand" in reason
    for word, template in world.document["pools"]["gpu"]["templates"].items():
        reply = requests.post(
            f"{world.fake.url}/compute/v1/projects/{world.name}/zones/us-central1-a/instances",
            params={"sourceInstanceTemplate": template},
            json={
                "name": f"castor-{word}",
                "machineType": f"zones/us-central1-a/machineTypes/{machine_type}",
            },
            timeout=60,
        )
        assert reply.ok is (word in sold), reply.text


@pytest.mark.parametrize(
    ("scheduling", "said"),
    [
        (
            {"provisioningModel": "STANDARD"},
            "it launches STANDARD: provisioningModel must be SPOT",
        ),
        ({"preemptible": True}, "it launches preemptible, as it was before spot"),
        ({"provisioningModel": "SPOT"}, "instanceTerminationAction must be DELETE"),
    ],
)
def test_a_template_that_buys_something_else_is_not_used(
    world: GcpWorld, scheduling: dict[str, object], said: str
) -> None:
    world.add_template("castor-gpu-spot", **scheduling)
    provider = world.connect()
    assert SMALL in prices(provider) and SMALL_SPOT not in prices(provider)
    reason = provider.condition().left_out[SMALL_SPOT]
    assert reason.startswith("pools.gpu.templates.spot: ") and said in reason


@pytest.mark.parametrize(
    ("disk_type", "machine_type", "fits"),
    [
        ("pd-balanced", "g2-standard-4", True),
        ("", "g2-standard-4", True),
        ("pd-standard", "g2-standard-4", False),
        ("hyperdisk-balanced", "a2-highgpu-1g", False),
    ],
)
def test_a_boot_disk_that_a_machine_does_not_take_is_left_out(
    world: GcpWorld, disk_type: str, machine_type: str, fits: bool
) -> None:
    """The fake refuses it, too."""
    pool = world.document["pools"]["gpu"]
    pool |= {"machine_types": [machine_type], "purchases": ["spot"]}
    disk = world.project.templates["castor-gpu-spot"]["properties"]["disks"][0]
    disk["initializeParams"]["diskType"] = disk_type
    provider = world.connect()
    offer = f"gpu/{machine_type}/us-central1-a/spot"
    assert (offer in prices(provider)) is fits
    reply = requests.post(
        f"{world.fake.url}/compute/v1/projects/{world.name}/zones/us-central1-a/instances",
        params={"sourceInstanceTemplate": pool["templates"]["spot"]},
        json={
            "name": "castor-test",
            "machineType": f"zones/us-central1-a/machineTypes/{machine_type}",
        },
        timeout=60,
    )
    assert reply.ok is fits, reply.text
    if not fits:
        reason = provider.condition().left_out[offer]
        assert f"{machine_type} does not take a boot disk of type {disk_type}: use pd-" in reason
        assert reason.startswith("pools.gpu.templates.spot: ")


BOTH = "us-central1: NVIDIA_L4_GPUS + PREEMPTIBLE_NVIDIA_L4_GPUS"


def launched(provider: GcpProvider, world: GcpWorld, offer: str) -> int:
    """Return how many instances of an offer launch until the quota is used up."""
    for count in range(8):
        try:
            provider.launch(world.request(f"{offer}-{count}", offer))
        except QuotaExceeded:
            return count
    return 8


def test_what_is_deleted_within_a_week_counts_against_either_quota(world: GcpWorld) -> None:
    """Compute Engine takes on-demand instances of a project that has a quota of spot alone."""
    world.project.quotas["us-central1", "NVIDIA_L4_GPUS"] = 1.0
    world.project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 2.0
    provider = world.connect()
    found = limits(provider)
    assert (found[BOTH].maximum, found[BOTH].offers) == (3, frozenset(prices(provider)))
    spot = found["us-central1: PREEMPTIBLE_NVIDIA_L4_GPUS"]
    assert spot.maximum == 2 and SMALL not in (spot.offers or ())
    assert "us-central1: NVIDIA_L4_GPUS" not in found
    assert launched(provider, world, SMALL) == found[BOTH].maximum
    assert launched(provider, world, SMALL_SPOT) == 0, "on demand has taken the quota of spot"


def test_a_quota_of_spot_alone_is_enough_for_on_demand(world: GcpWorld) -> None:
    world.project.quotas["us-central1", "NVIDIA_L4_GPUS"] = 0.0
    provider = world.connect()
    assert limits(provider)[BOTH].maximum == 32
    assert provider.condition().troubles == ()


def test_without_on_demand_the_quota_of_spot_bounds_alone(world: GcpWorld) -> None:
    world.document["pools"]["gpu"]["purchases"] = ["spot"]
    names = {name for name in limits(world.connect()) if "GPUS" in name}
    assert names == {"us-central1: PREEMPTIBLE_NVIDIA_L4_GPUS"}


def lay_long_runs(world: GcpWorld) -> None:
    """Templates whose on-demand instances run for more than a week."""
    run = {"instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": "604801"}}
    world.add_template("castor-gpu-on-demand", provisioningModel="STANDARD", **run)


def test_quotas_are_limits_spot_and_long_on_demand_apart(world: GcpWorld) -> None:
    lay_long_runs(world)
    world.project.quotas["us-central1", "NVIDIA_L4_GPUS"] = 3.0
    found = limits(world.connect())
    own = found["us-central1: NVIDIA_L4_GPUS"]
    assert (
        own.maximum == 3 and SMALL in (own.offers or ()) and SMALL_SPOT not in (own.offers or ())
    )
    assert found["us-central1: PREEMPTIBLE_NVIDIA_L4_GPUS"].maximum == 32
    assert found["pools.gpu"].maximum == 8
    prices = [name.partition(" at $")[2].partition("/h")[0] for name in found if " at $" in name]
    assert prices and not [price for price in prices if "." in price and price.endswith("0")]


def test_spot_without_a_quota_of_its_own_counts_as_on_demand(world: GcpWorld) -> None:
    world.project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 0.0
    found = limits(world.connect())
    assert SMALL_SPOT in (found["us-central1: NVIDIA_L4_GPUS"].offers or ())


def test_a_quota_of_nothing_is_told(world: GcpWorld) -> None:
    lay_long_runs(world)
    world.project.quotas["us-central1", "NVIDIA_L4_GPUS"] = 0.0
    provider = world.connect()
    provider.limits()
    assert (
        "us-central1: NVIDIA_L4_GPUS: the quota is too small for one"
        in provider.condition().notes[0]
    )
    assert provider.condition().troubles == ()


def test_quotas_that_can_not_be_read_bound_nothing(world: GcpWorld) -> None:
    world.faults.add(Fault("compute.regions.get", code="forbidden", status=403, times=None))
    provider = world.connect()
    found = limits(provider)
    assert set(found) >= {"pools.gpu"}
    assert not [name for name in found if "GPUS" in name]
    (trouble,) = provider.condition().troubles
    assert trouble.startswith("quotas are unknown, and no limit: ")
