"""What can be asked of zones, machine types, accelerators, quotas and prices."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest
from google.cloud import compute_v1

from tests.fakes.gcp.ground import HTTP, ZONE, Ground

SKUS = "/v1/services/6F81-5844-456A/skus"


def test_machine_types_say_what_is_in_them(ground: Ground) -> None:
    found = ground.send("GET", f"zones/{ZONE}/machineTypes/a2-highgpu-8g").json()
    assert (found["guestCpus"], found["memoryMb"], found["zone"]) == (96, 696_320, ZONE)
    (accelerator,) = found["accelerators"]
    assert accelerator == {
        "guestAcceleratorType": "nvidia-tesla-a100",
        "guestAcceleratorCount": 8,
    }
    everywhere = ground.send("GET", "aggregated/machineTypes").json()["items"]
    names = {one["name"] for one in everywhere["zones/us-central1-b"]["machineTypes"]}
    assert "a2-highgpu-8g" in names
    assert "a3-highgpu-8g" not in names
    ground.project.offered[ZONE] = {"e2-standard-4"}
    assert ground.send("GET", f"zones/{ZONE}/machineTypes/a2-highgpu-8g").status_code == 404


def test_accelerators_are_where_their_machines_are(ground: Ground) -> None:
    def names(zone: str) -> set[str]:
        items = ground.send("GET", f"zones/{zone}/acceleratorTypes").json()["items"]
        return {one["name"] for one in items}

    assert names(ZONE) - names("us-central1-b") == {"nvidia-h100-80gb", "nvidia-h200-141gb"}
    assert {"nvidia-tesla-t4", "nvidia-l4"} <= names("us-central1-b")
    one = ground.send("GET", f"zones/{ZONE}/acceleratorTypes/nvidia-l4").json()
    assert one["maximumCardsPerInstance"] == 8
    assert ground.send("GET", f"zones/{ZONE}/acceleratorTypes/nvidia-x").status_code == 404
    scopes = ground.send("GET", "aggregated/acceleratorTypes").json()["items"]
    assert scopes[f"zones/{ZONE}"]["acceleratorTypes"]


def quotas(ground: Ground) -> dict[str, tuple[float, float]]:
    told = ground.send("GET", "regions/us-central1").json()["quotas"]
    return {one["metric"]: (one["usage"], one["limit"]) for one in told}


def test_quotas_say_what_is_used(ground: Ground) -> None:
    assert quotas(ground)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (0.0, 32.0)
    ground.insert("one")
    assert quotas(ground)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (1.0, 32.0)
    assert quotas(ground)["PREEMPTIBLE_CPUS"] == (4.0, 512.0)
    assert quotas(ground)["NVIDIA_L4_GPUS"][0] == 0.0
    ground.wait(ground.delete("one"))
    assert quotas(ground)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (0.0, 32.0)


def test_the_quota_of_all_regions_is_the_projects(ground: Ground) -> None:
    on_demand = {"provisioningModel": "STANDARD", "onHostMaintenance": "TERMINATE"}
    template = ground.project.templates["castor-gpu"]["properties"]
    template["scheduling"] = on_demand
    ground.insert("one")
    (told,) = ground.send("GET", "").json()["quotas"]
    assert told == {"metric": "GPUS_ALL_REGIONS", "limit": 64.0, "usage": 1.0}


def test_zones_and_regions_are_listed(ground: Ground) -> None:
    zones = ground.send("GET", "zones").json()["items"]
    regions = ground.send("GET", "regions").json()["items"]
    assert {one["region"] for one in zones} == {one["selfLink"] for one in regions}
    assert ground.send("GET", f"zones/{ZONE}").json()["status"] == "UP"
    assert ground.send("GET", "zones/nowhere-a").status_code == 404
    assert ground.send("GET", "regions/nowhere").status_code == 400


def test_a_compact_policy_is_laid_and_used(ground: Ground) -> None:
    body = {"name": "compact", "groupPlacementPolicy": {"collocation": "COLLOCATED"}}
    path = "regions/us-central1/resourcePolicies"
    assert ground.send("POST", path, body).status_code == 200
    assert ground.send("POST", path, body).status_code == 409
    assert ground.send("GET", f"{path}/compact").json()["status"] == "READY"
    link = "regions/us-central1/resourcePolicies/compact"
    found = ground.running("one", resource_policies=[link])
    assert list(found.resource_policies) == [link]
    properties = ground.project.templates["castor-gpu"]["properties"]
    properties["resourcePolicies"] = ["compact"]
    assert list(ground.running("two").resource_policies) == [link]
    properties["resourcePolicies"] = [link]
    with pytest.raises(BadRequest, match="Names, not URLs"):
        ground.insert("three")


@pytest.mark.gcp
def test_an_accelerator_of_choice_goes_with_the_machines_that_take_one(ground: Ground) -> None:
    chosen = compute_v1.AcceleratorConfig(
        accelerator_type=f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4", accelerator_count=2
    )
    found = ground.running(
        "one",
        machine_type=f"zones/{ZONE}/machineTypes/n1-standard-8",
        guest_accelerators=[chosen],
    )
    assert found.guest_accelerators[0].accelerator_count == 2
    assert quotas(ground)["PREEMPTIBLE_NVIDIA_T4_GPUS"][0] == 2.0


def skus(ground: Ground, **query: str) -> list[dict[str, Any]]:
    caller = f"look@{ground.name}.iam.gserviceaccount.com"
    headers = {"Authorization": f"Bearer ya29.{caller}"}
    found: list[dict[str, Any]] = []
    for _ in itertools.count():
        reply = HTTP.get(ground.fake.url + SKUS, params=query, headers=headers).json()
        found.extend(reply["skus"])
        if not reply["nextPageToken"]:
            return found
        query["pageToken"] = reply["nextPageToken"]
    raise AssertionError


def usd(sku: dict[str, Any]) -> Decimal:
    (price,) = sku["pricingInfo"]
    (rate,) = price["pricingExpression"]["tieredRates"]
    return Decimal(rate["unitPrice"]["units"]) + Decimal(rate["unitPrice"]["nanos"]).scaleb(-9)


def test_the_parts_of_a_machine_add_up_to_its_price(ground: Ground) -> None:
    ground.project.page = 10
    here = {
        one["description"]: one for one in skus(ground) if "us-central1" in one["serviceRegions"]
    }
    parts = {name: usd(one) for name, one in here.items()}
    whole = (
        4 * parts["G2 Instance Core running in Americas"]
        + 16 * parts["G2 Instance Ram running in Americas"]
        + parts["Nvidia L4 GPU running in Americas"]
    )
    assert whole == pytest.approx(Decimal("0.7068"), abs=Decimal("0.001"))
    spot = here["Spot Preemptible Nvidia L4 GPU running in Americas"]
    assert spot["category"]["usageType"] == "Preemptible"
    assert usd(spot) < parts["Nvidia L4 GPU running in Americas"]


def test_a_price_can_be_changed(ground: Ground) -> None:
    title = "Nvidia L4 GPU running in Americas"
    ground.project.prices[title] = Decimal("12.5")
    (found,) = [one for one in skus(ground) if one["description"] == title]
    assert usd(found) == Decimal("12.5")
    caller = f"look@{ground.name}.iam.gserviceaccount.com"
    headers = {"Authorization": f"Bearer ya29.{caller}"}
    missing = HTTP.get(f"{ground.fake.url}/v1/services/none/skus", headers=headers)
    assert missing.status_code == 400
