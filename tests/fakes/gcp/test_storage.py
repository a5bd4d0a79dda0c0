"""Buckets by obstore through the XML API, and by the JSON API."""

from __future__ import annotations

import json
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import GCSStore

from tests.fakes.faults import Fault, When
from tests.fakes.gcp.clients import HTTP, ProjectClients


@pytest.fixture
def bucket(clients: ProjectClients) -> str:
    name = f"{clients.name}-files"
    body = {"name": name}
    made = HTTP.post(f"{clients.fake.url}/storage/v1/b?project={clients.name}", json=body)
    assert made.is_success
    return name


@pytest.fixture
def store(clients: ProjectClients, bucket: str) -> Any:
    """Return a store with a token; without one obstore asks the real metadata server."""
    config: Any = {"base_url": clients.fake.url, "bearer_token": "any"}
    return GCSStore(
        bucket,
        prefix="jobs/digits",
        config=config,
        client_options={"allow_http": True},
        retry_config={"max_retries": 1},
    )


def test_an_object_is_written_and_read(store: Any) -> None:
    obstore.put(store, "a b/logs.txt", b"hello")
    assert bytes(obstore.get(store, "a b/logs.txt").bytes()) == b"hello"
    assert bytes(obstore.get_range(store, "a b/logs.txt", start=1, end=3)) == b"el"
    head = obstore.head(store, "a b/logs.txt")
    assert (head["path"], head["size"]) == ("a b/logs.txt", 5)
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a b/logs.txt", b"other", mode="create")
    obstore.delete(store, "a b/logs.txt")
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "a b/logs.txt")


def test_lists_go_over_pages(clients: ProjectClients, store: Any) -> None:
    clients.project.page = 2
    for name in ("a/1", "a/2", "b/1", "c", "d"):
        obstore.put(store, name, b"x")
    paths = [entry["path"] for page in obstore.list(store) for entry in page]
    assert paths == ["a/1", "a/2", "b/1", "c", "d"]
    split = obstore.list_with_delimiter(store)
    assert split["common_prefixes"] == ["a", "b"]
    assert [entry["path"] for entry in split["objects"]] == ["c", "d"]


def test_what_is_large_comes_in_parts(clients: ProjectClients, store: Any) -> None:
    content = bytes(range(256)) * 50_000
    obstore.put(store, "large", content, use_multipart=True, chunk_size=5 * 1024 * 1024)
    assert clients.project.calls["storage.multipart.upload"] == 3
    assert bytes(obstore.get(store, "large").bytes()) == content
    obstore.copy(store, "large", "copy")
    obstore.rename(store, "copy", "renamed")
    assert [entry["path"] for page in obstore.list(store) for entry in page] == [
        "large",
        "renamed",
    ]


def test_faults_are_of_both_apis(clients: ProjectClients, bucket: str, store: Any) -> None:
    obstore.put(store, "one", b"1")
    clients.project.faults.add(Fault("storage.objects.get", status=503, times=None))
    with pytest.raises(Exception, match="503"):
        obstore.get(store, "one")
    url = f"{clients.fake.url}/storage/v1/b/{bucket}/o/jobs%2Fdigits%2Fone"
    assert HTTP.get(url).status_code == 503
    clients.project.faults.clear()
    clients.project.faults.add(Fault("storage.objects.get", When.MALFORMED))
    assert not HTTP.get(url).text.endswith("}")
    assert HTTP.get(url).json()["size"] == "1"


def test_the_json_api_has_the_same_objects(
    clients: ProjectClients, bucket: str, store: Any
) -> None:
    at = f"{clients.fake.url}/storage/v1/b/{bucket}"
    upload = f"{clients.fake.url}/upload/storage/v1/b/{bucket}/o"
    once = {"uploadType": "media", "name": "jobs/digits/parcel", "ifGenerationMatch": "0"}
    made = HTTP.post(upload, params=once, content=b"parcel")
    assert made.json()["size"] == "6"
    assert HTTP.post(upload, params=once, content=b"parcel").status_code == 412
    assert bytes(obstore.get(store, "parcel").bytes()) == b"parcel"
    link = f"{at}/o/jobs%2Fdigits%2Fparcel"
    assert HTTP.get(link, params={"alt": "media"}).content == b"parcel"
    assert HTTP.get(link, params={"generation_match": "1"}).status_code == 400
    listing = HTTP.get(f"{at}/o", params={"prefix": "jobs/", "delimiter": "/"}).json()
    assert listing["prefixes"] == ["jobs/digits/"]
    assert HTTP.delete(link).status_code == 204
    assert HTTP.get(link).status_code == 404
    assert HTTP.get(f"{clients.fake.url}/storage/v1/b/none-such/o").status_code == 404
    assert HTTP.get(at).json()["name"] == bucket


@pytest.mark.gcp
def test_an_upload_may_have_two_parts(clients: ProjectClients, bucket: str) -> None:
    resource = json.dumps({"name": "pools.json", "contentType": "application/json"})
    content = (
        f"--x\r\nContent-Type: application/json\r\n\r\n{resource}\r\n"
        "--x\r\nContent-Type: application/json\r\n\r\n{}\r\n--x--\r\n"
    )
    made = HTTP.post(
        f"{clients.fake.url}/upload/storage/v1/b/{bucket}/o?uploadType=multipart",
        content=content,
        headers={"Content-Type": "multipart/related; boundary=x"},
    )
    assert made.json()["contentType"] == "application/json"
    url = f"{clients.fake.url}/download/storage/v1/b/{bucket}/o/pools.json?alt=media"
    assert HTTP.get(url).json() == {}
