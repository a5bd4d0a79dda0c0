"""Downscoped tokens by Google's own client of the token service."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from google.auth.downscoped import (
    AccessBoundaryRule,
    AvailabilityCondition,
    CredentialAccessBoundary,
)
from google.auth.exceptions import OAuthError
from google.auth.transport.requests import Request
from google.oauth2 import sts

from tests.fakes.gcp.buckets import Bucket
from tests.fakes.gcp.clients import HTTP, ProjectClients

TOKEN = "urn:ietf:params:oauth:token-type:access_token"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ALL = "inRole:roles/storage.objectAdmin"


@pytest.fixture
def bucket(clients: ProjectClients) -> Bucket:
    name = f"{clients.name}-jobs"
    bucket = clients.project.buckets[name] = Bucket(name, clients.project)
    bucket.put("jobs/ours/log", b"ours")
    bucket.put("jobs/theirs/log", b"theirs")
    return bucket


def narrow(bucket: Bucket, prefix: str, permission: str = ALL, condition: str = "") -> Any:
    objects = f"resource.name.startsWith('projects/_/buckets/{bucket.name}/objects/{prefix}')"
    lists = (
        f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{prefix}')"
    )
    rule = AccessBoundaryRule(
        available_resource=f"//storage.googleapis.com/projects/_/buckets/{bucket.name}",
        available_permissions=[permission],
        availability_condition=AvailabilityCondition(condition or f"{objects} || {lists}"),
    )
    return CredentialAccessBoundary([rule]).to_json()


def exchanged(clients: ProjectClients, options: Any) -> str:
    reply = sts.Client(f"{clients.fake.url}/v1/token").exchange_token(
        request=Request(),
        grant_type=GRANT,
        subject_token="any",
        subject_token_type=TOKEN,
        requested_token_type=TOKEN,
        additional_options=options,
    )
    assert reply["expires_in"] == 3600
    return str(reply["access_token"])


def status(
    clients: ProjectClients, bucket: Bucket, token: str, path: str, verb: str = "GET"
) -> int:
    url = f"{clients.fake.url}/{bucket.name}{path}"
    headers = {"Authorization": f"Bearer {token}"}
    return HTTP.request(verb, url, headers=headers).status_code


def test_a_token_reaches_below_its_prefix_only(clients: ProjectClients, bucket: Bucket) -> None:
    token = exchanged(clients, narrow(bucket, "jobs/ours/"))
    other = Bucket("other-bucket", clients.project)
    clients.project.buckets[other.name] = other
    asked = [
        ("/jobs/ours/log", "GET", 200),
        ("/jobs/ours/new", "PUT", 200),
        ("/jobs/theirs/log", "GET", 403),
        ("/jobs/theirs/new", "PUT", 403),
        ("/jobs/theirs/log", "DELETE", 403),
        ("?list-type=2&prefix=jobs/ours/", "GET", 200),
        ("?list-type=2&prefix=jobs/", "GET", 403),
        ("?list-type=2", "GET", 403),
    ]
    statuses = [
        (path, verb, status(clients, bucket, token, path, verb)) for path, verb, _ in asked
    ]
    assert statuses == asked
    assert status(clients, other, token, "/jobs/ours/x", "PUT") == 403
    assert sorted(bucket.objects) == ["jobs/ours/log", "jobs/ours/new", "jobs/theirs/log"]
    assert status(clients, bucket, "any", "/jobs/theirs/log") == 200


def test_the_other_api_keeps_to_it_too(clients: ProjectClients, bucket: Bucket) -> None:
    headers = {"Authorization": f"Bearer {exchanged(clients, narrow(bucket, 'jobs/ours/'))}"}
    root = f"{clients.fake.url}/storage/v1/b/{bucket.name}/o"
    assert HTTP.get(f"{root}/jobs%2Fours%2Flog", headers=headers).status_code == 200
    assert HTTP.get(f"{root}/jobs%2Ftheirs%2Flog", headers=headers).status_code == 403
    upload = f"{clients.fake.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name="
    assert HTTP.post(f"{upload}jobs/ours/2", content=b"", headers=headers).status_code == 200
    assert HTTP.post(f"{upload}jobs/theirs/2", content=b"", headers=headers).status_code == 403


def test_a_token_ends_and_does_no_more_than_its_role(
    clients: ProjectClients, bucket: Bucket
) -> None:
    reader = "inRole:roles/storage.objectViewer"
    token = exchanged(clients, narrow(bucket, "jobs/ours/", reader))
    assert status(clients, bucket, token, "/jobs/ours/log") == 200
    assert status(clients, bucket, token, "/jobs/ours/log", "DELETE") == 403
    clients.clock.advance(3601.0)
    assert status(clients, bucket, token, "/jobs/ours/log") == 401


def test_a_role_of_ones_own_may_make_and_not_overwrite(
    clients: ProjectClients, bucket: Bucket
) -> None:
    role = f"projects/{clients.name}/roles/castor_write"
    clients.project.roles[role] = {"storage.objects.create"}
    token = exchanged(clients, narrow(bucket, "jobs/ours/", f"inRole:{role}"))
    assert status(clients, bucket, token, "/jobs/ours/new", "PUT") == 200
    assert status(clients, bucket, token, "/jobs/ours/log", "PUT") == 403
    assert status(clients, bucket, token, "/jobs/ours/log") == 403
    assert bucket.get("jobs/ours/log").content == b"ours"
    assert status(clients, bucket, token, "/jobs/ours/large?uploads", "POST") == 403
    clients.project.roles[role].add("storage.multipartUploads.create")
    token = exchanged(clients, narrow(bucket, "jobs/ours/", f"inRole:{role}"))
    assert status(clients, bucket, token, "/jobs/ours/large?uploads", "POST") == 200


def test_an_account_has_tokens_for_who_acts_as_it(clients: ProjectClients) -> None:
    def asked(project_name: str = "-", **body: Any) -> Any:
        email = f"castor-job@{clients.name}.iam.gserviceaccount.com"
        name = f"projects/{project_name}/serviceAccounts/{email}"
        return HTTP.post(f"{clients.fake.url}/v1/{name}:generateAccessToken", json=body)

    scope = ["https://www.googleapis.com/auth/devstorage.read_write"]
    reply = asked(scope=scope, lifetime="600s").json()
    end = datetime.fromisoformat(reply["expireTime"])
    assert end.timestamp() == clients.clock.now() + 600
    assert "castor-job@" in reply["accessToken"]
    assert asked(scope=scope, lifetime="3601s").status_code == 400
    assert asked().status_code == 400
    assert asked(clients.name, scope=scope).status_code == 400
    assert (
        clients.project.calls["iamcredentials.projects.serviceAccounts.generateAccessToken"] == 4
    )


def test_an_exchange_is_refused_in_words_of_oauth(clients: ProjectClients, bucket: Bucket) -> None:
    form = {"grant_type": GRANT, "options": json.dumps(narrow(bucket, "jobs/ours/"))}
    url = f"{clients.fake.url}/v1/token"
    reply = HTTP.post(url, data=form)
    assert (reply.status_code, reply.json()["error"]) == (400, "invalid_request")
    assert "requested_token_type" in reply.json()["error_description"]
    form["requested_token_type"] = TOKEN
    assert HTTP.post(url, data=form).json()["token_type"] == "Bearer"
    reply = HTTP.post(url, data=form, headers={"Authorization": "Bearer any"})
    assert "no Authorization header" in reply.json()["error_description"]


def test_what_the_fake_can_not_judge_is_refused(clients: ProjectClients, bucket: Bucket) -> None:
    with pytest.raises(OAuthError):
        exchanged(clients, narrow(bucket, "", condition="resource.name.endsWith('log')"))
    with pytest.raises(OAuthError):
        exchanged(clients, narrow(bucket, "", permission="inRole:roles/owner"))
