"""Settings: what they say, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.clouds import cloud_of, open_providers, open_storage
from autoscaler.domain.errors import NotFound, PermissionDenied, SpecError, Unavailable
from autoscaler.domain.offer import Purchase
from providers.gcp.reading import fetch_settings, parse_settings
from providers.gcp.session import open_session
from providers.plugin import ControllerContext
from tests.fakes.faults import Fault
from tests.providers.gcp.cloud import SMALL, GcpWorld

TEMPLATE = "projects/my-project/global/instanceTemplates/castor-prod-gpu-spot-1"
GOOD: dict[str, Any] = {
    "schema": 1,
    "cloud": "gcp",
    "deployment": "prod",
    "project": "my-project",
    "regions": {
        "us-central1": {
            "zones": ["us-central1-a", "us-central1-b"],
            "user_data": "gs://castor-prod/user-data",
            "subscription": "projects/my-project/subscriptions/castor-prod-events",
        }
    },
    "pools": {
        "gpu": {
            "region": "us-central1",
            "templates": {"spot": TEMPLATE},
            "machine_types": ["g2-standard-4"],
            "purchases": ["spot"],
            "max_instances": 16,
            "max_usd_per_hour": 40,
            "boot": "4m",
            "boot_minutes": 45,
        }
    },
    "max_usd_per_hour": "50.5",
    "labels": {"team": "vision"},
}


def context_of(world: GcpWorld, state: Path) -> ControllerContext:
    return ControllerContext(state, "127.0.0.1", "controller", VirtualClock(world.clock.now()))


def test_a_whole_document_is_read() -> None:
    settings = parse_settings(json.dumps(GOOD), "pools.json")
    pool = settings.pools["gpu"]
    assert (pool.boot, pool.purchases) == (240.0, (Purchase.SPOT,))
    assert pool.boot_minutes == 45
    assert settings.zones_of(pool) == ("us-central1-a", "us-central1-b")
    assert (settings.prefix, settings.whom) == ("castor-prod-", "castor-prod")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", 2, "schema: this Castor reads schema 1, not 2"),
        ("cloud", "azure", "cloud"),
        ("deployment", "prod-1", 'deployment: "prod-1" is not valid: write it like prod'),
        ("deployment", 13 * "p", "is not valid: write it like prod"),
        ("project", "My Project", "project: "),
        ("regions", {}, "regions"),
        ("regions.us-central1.zones", ["us-east1-b"], "us-east1-b is not in us-central1"),
        ("regions.us-central1.user_data", "s3://bucket/x", "regions.us-central1.user_data"),
        ("regions.us-central1.subscription", "events", "regions.us-central1.subscription"),
        ("regions.us-central1.jobs", "gs://castor-prod/jobs", "job_account is missing"),
        ("pools.gpu.region", "us-west1", "pools.gpu.region: us-west1 is not in regions"),
        ("pools.gpu.zones", ["us-central1-f"], "us-central1-f is not in regions.us-central1"),
        ("pools.gpu.templates.spot", "castor-gpu", "pools.gpu.templates.spot"),
        ("pools.gpu.purchases", ["spot", "on-demand"], "templates.on-demand is missing"),
        ("pools.gpu.purchases", "flex-start", "templates.flex-start is missing"),
        ("pools.gpu.purchases", "reserved", "pools.gpu: reservation is missing"),
        ("pools.gpu.purchases", "rented", "pools.gpu.purchases: must be 'on-demand', 'spot',"),
        ("pools.gpu.reservation", "own", "pools.gpu: reservation: is for purchases = reserved"),
        ("pools.gpu.reservation", "projects/p/own", "is not valid: write it like my-reservation"),
        ("pools.gpu.machine_types", [], "pools.gpu.machine_types: is empty"),
        ("pools.gpu.accelerator", {"type": "t4", "count": 1}, "write it like nvidia-tesla-t4"),
        ("pools.gpu.boot_minutes", 2, "pools.gpu.boot_minutes: must be at least 3"),
        ("pools.gpu.boot_minutes", 121, "pools.gpu.boot_minutes: must be at most 120"),
        ("pools.gpu.max_instances", 0, "pools.gpu.max_instances: must be at least 1"),
        ("pools.gpu.max_usd_per_hour", "free", "pools.gpu.max_usd_per_hour"),
        ("max_usd_per_hour", None, "max_usd_per_hour: is required"),
        ("max_instance", 3, 'unknown key "max_instance"'),
        ("labels", {"castor-job": "x"}, '"castor-job" begins with a reserved prefix'),
        ("labels", {"Team": "x"}, "lower-case letters"),
        ("labels", {f"k{number}": "v" for number in range(49)}, "49 labels are too many"),
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


def test_an_object_of_cloud_storage_is_read(world: GcpWorld) -> None:
    world.bucket.put("pools.json", json.dumps(world.document).encode())
    source = f"gs://{world.name}/pools.json"
    assert parse_settings(fetch_settings(source, world.session), source) == world.settings


def test_an_object_that_is_not_there_is_named(world: GcpWorld) -> None:
    source = f"gs://{world.name}/none.json"
    with pytest.raises(NotFound, match=rf"--pools {source}: there is no such object"):
        fetch_settings(source, world.session)
    world.faults.add(Fault("storage.objects.get", code="backendError", status=503))
    with pytest.raises(Unavailable, match=rf"--pools {source}: objects.get"):
        fetch_settings(source, world.session)
    with pytest.raises(SpecError, match=r"write it like gs://BUCKET/pools\.json"):
        fetch_settings("gs://bucket", world.session)


def test_credentials_that_can_not_be_used_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(PermissionDenied, match="gcloud auth application-default login"):
        open_session()
    assert open_session("http://127.0.0.1:9").endpoint_url == "http://127.0.0.1:9"


def test_where_pools_are_says_which_cloud(tmp_path: Path) -> None:
    assert (cloud_of("gs://bucket/pools.json"), cloud_of("ssm:/castor/pools")) == ("gcp", "aws")
    path = tmp_path / "pools.json"
    for document, cloud in ((GOOD, "gcp"), ({"schema": 1}, "aws"), ({"cloud": "aws"}, "aws")):
        path.write_text(json.dumps(document))
        assert cloud_of(str(path)) == cloud
    path.write_text(json.dumps({"cloud": "azure"}))
    with pytest.raises(SpecError, match='cloud: "azure" is unknown: write aws or gcp'):
        cloud_of(str(path))
    path.write_text(json.dumps({key: GOOD[key] for key in GOOD if key != "cloud"}))
    with pytest.raises(SpecError, match=r"cloud is missing, .*: add cloud: gcp"):
        cloud_of(str(path))
    with pytest.raises(SpecError, match="write a file, ssm:/NAME or gs://BUCKET/NAME"):
        cloud_of("s3://bucket/pools.json")


def test_the_keys_that_a_document_must_have_are_those_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a mapping with at least schema, deployment, "):
        parse_settings("pools", "file")
    with pytest.raises(SpecError, match="valid keys are schema, cloud, "):
        parse_settings(json.dumps({**GOOD, "xyz": 1}), "file")


def test_pools_of_a_file_are_opened(
    world: GcpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(world.document))
    context = context_of(world, tmp_path)
    sources = [str(path)]
    found = open_providers(None, sources, context)
    assert SMALL in {offer.id for offer in found["gcp"].offers()}
    with pytest.raises(SpecError, match="pools of gcp were named before"):
        open_providers(None, sources * 2, context)
    del world.document["endpoint_url"]
    path.write_text(json.dumps(world.document))
    with pytest.raises(SpecError, match=r"instances can't reach 127\.0\.0\.1"):
        open_providers(None, sources, context)


def test_jobs_keep_their_files_where_the_pools_named_first_do(
    world: GcpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    path, other = tmp_path / "pools.json", tmp_path / "none-such.json"
    path.write_text(json.dumps(world.document))
    sources, context = [str(path), str(other)], context_of(world, tmp_path)
    with pytest.raises(
        SpecError, match=r"regions\.us-central1\.jobs: no region names .* job_account"
    ):
        open_storage(sources, context)
    account = f"castor-test-job@{world.name}.iam.gserviceaccount.com"
    told = {"jobs": f"gs://{world.name}/jobs", "job_account": account}
    world.document["regions"]["us-central1"].update(told)
    path.write_text(json.dumps(world.document))
    storage = open_storage(sources, context)
    assert storage is not None
    storage.jobs.put("digits/log", b"1")
    assert world.bucket.get("jobs/digits/log").content == b"1"
    assert storage.grant("digits").place == f"gs://{world.name}/jobs/digits"
    with pytest.raises(SpecError, match=r"none-such\.json"):
        open_storage(list(reversed(sources)), context)
    assert open_storage([], context) is None


def test_jobs_keep_their_files_where_they_did_before(
    world: GcpWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    path, context = tmp_path / "pools.json", context_of(world, tmp_path / "state")
    region = world.document["regions"]["us-central1"]
    region["job_account"] = f"castor-test-job@{world.name}.iam.gserviceaccount.com"

    def opened(folder: str) -> str:
        region["jobs"] = f"gs://{world.name}/{folder}"
        path.write_text(json.dumps(world.document))
        storage = open_storage([str(path)], context)
        assert storage is not None
        return storage.jobs.place

    here = opened("jobs")
    assert opened("jobs") == here
    with pytest.raises(
        SpecError, match=rf"have their files in {here}, but this source names gs://.*/elsewhere"
    ):
        opened("elsewhere")
    assert opened("jobs") == here
    (tmp_path / "state" / "place-of-jobs").unlink()
    assert opened("elsewhere") == f"gs://{world.name}/elsewhere"
