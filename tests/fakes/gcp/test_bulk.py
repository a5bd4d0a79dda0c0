"""Many instances by one call: at least as many as are wanted, or none."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.gcp.ground import TEMPLATE, ZONE, Ground, properties

PLACE = ("g2-standard-4", ZONE, "SPOT")
LINK = f"global/instanceTemplates/{TEMPLATE}"


def bulk(
    ground: Ground, scope: str = f"zones/{ZONE}", status: int = 200, **told: Any
) -> dict[str, Any]:
    body = {"count": "3", "namePattern": "n-####", "sourceInstanceTemplate": LINK, **told}
    reply: httpx.Response = ground.send("POST", f"{scope}/instances/bulkInsert", body)
    assert reply.status_code == status, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def done(ground: Ground, operation: dict[str, Any], scope: str = f"zones/{ZONE}") -> Any:
    return ground.send("POST", f"{scope}/operations/{operation['name']}/wait").json()


def test_they_are_numbered_and_run(ground: Ground) -> None:
    begun = bulk(ground, instanceProperties={"labels": {"castor-job": "digits"}})
    assert "error" not in done(ground, begun)
    assert ground.listed("labels.castor-job=digits status=RUNNING") == [
        *("n-0001", "n-0002", "n-0003")
    ]
    bulk(ground, count="1")
    assert "n-0004" in ground.project.alive()
    of_group = ground.send("GET", f"zones/{ZONE}/operations").json()["items"]
    inserts = [one for one in of_group if one["operationType"] == "insert"]
    groups = {one["operationGroupId"] for one in inserts if "n-0004" not in one["targetLink"]}
    assert groups == {begun["operationGroupId"]}


def test_with_too_little_capacity_there_are_none(ground: Ground) -> None:
    ground.project.capacity[PLACE] = 2
    failed = done(ground, bulk(ground))
    (told,) = failed["instancesBulkInsertOperationMetadata"]["perLocationStatus"].values()
    assert (told["targetVmCount"], told["deletedVmCount"]) == (3, 2)
    assert failed["error"]["errors"][0]["code"].startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
    assert ground.project.remaining() == []
    assert ground.project.capacity[PLACE] == 2


def test_with_enough_for_the_least_there_are_those(ground: Ground) -> None:
    ground.project.capacity[PLACE] = 2
    assert "error" not in done(ground, bulk(ground, minCount="2"))
    assert len(ground.project.alive()) == 2
    assert ground.project.capacity[PLACE] == 0


def test_a_quota_that_is_too_small_for_all_is_refused(ground: Ground) -> None:
    ground.project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 2.0
    bulk(ground, status=403)
    assert ground.project.history == []


@pytest.mark.gcp
def test_names_may_be_told(ground: Ground) -> None:
    names = {"a": {}, "b": {"name": "c"}}
    bulk(ground, namePattern=None, count="2", perInstanceProperties=names)
    assert ground.project.alive() == ["a", "c"]
    bulk(ground, namePattern=None, count="2", perInstanceProperties={"d": {}}, status=400)
    bulk(ground, namePattern=None, count="1", perInstanceProperties={"a": {}}, status=409)


@pytest.mark.parametrize(
    "told",
    [
        {"count": "0"},
        {"minCount": "4"},
        {"namePattern": "n"},
        {"namePattern": "n-#-#"},
        {"namePattern": None},
        {"sourceInstanceTemplate": None},
        {"instanceProperties": {"machineType": f"zones/{ZONE}/machineTypes/g2-standard-4"}},
        {"locationPolicy": {"targetshape": "ANY"}},
    ],
)
def test_what_can_not_be_is_refused(ground: Ground, told: dict[str, Any]) -> None:
    bulk(ground, status=400, **told)
    assert ground.project.history == []


def test_a_region_gives_them_where_there_is_room(ground: Ground) -> None:
    ground.project.capacity[PLACE] = 0
    locations = {"zones/us-central1-c": {"preference": "DENY"}}
    begun = bulk(ground, "regions/us-central1", locationPolicy={"locations": locations})
    assert "error" not in done(ground, begun, "regions/us-central1")
    assert {one.zone for one in ground.project.history} == {"us-central1-b"}


@pytest.mark.gcp
def test_without_a_template_all_is_told(ground: Ground) -> None:
    bulk(ground, sourceInstanceTemplate=None, instanceProperties=properties())
    assert len(ground.project.alive()) == 3
