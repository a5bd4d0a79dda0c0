"""Jobs' files in Cloud Storage: what each job's token reaches, and what is said without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError
from google.oauth2.credentials import Credentials

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.errors import PermissionDenied, ProviderError, SpecError, Unavailable
from autoscaler.objects import Objects, always
from providers.gcp.reading import parse_settings
from providers.gcp.session import Session
from providers.gcp.settings import GcpSettings
from providers.gcp.storage import GcsJobStorage, boundary
from tests.conformance.storage import (
    BUNDLE,
    GRANT_SECONDS,
    BoundedStorageConformance,
    JobStorageConformance,
    Refusal,
)
from tests.fakes.faults import Fault, When
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import QUICK, REGION, GcpWorld
from tests.providers.gcp.ways import WAYS

GENERATE = "iamcredentials.projects.serviceAccounts.generateAccessToken"
EXCHANGE = "sts.token"
_DAY_SECONDS = 86_400.0


class GcsSite(GcpWorld):
    """Site for `tests.conformance.storage`."""

    key = "job_account"
    grant_actions = (GENERATE, EXCHANGE)
    refusals = (
        Refusal(
            Fault(GENERATE, code="forbidden", status=403),
            PermissionDenied,
            r"generateAccessToken: forbidden: .*roles/iam\.serviceAccountTokenCreator on "
            rf"regions\.{REGION}\.job_account, and enable iamcredentials\.googleapis\.com",
        ),
        Refusal(
            Fault(GENERATE, code="notFound", status=404),
            PermissionDenied,
            rf"correct regions\.{REGION}\.job_account, or apply Terraform again",
        ),
        Refusal(
            Fault(GENERATE, code="authError", status=401),
            PermissionDenied,
            "these credentials are not valid: run gcloud auth",
        ),
        Refusal(
            Fault(EXCHANGE, code="forbidden", status=403),
            PermissionDenied,
            r"sts\.token: forbidden: .*enable sts\.googleapis\.com",
        ),
        Refusal(
            Fault(EXCHANGE, code="invalid_grant", status=400),
            PermissionDenied,
            rf"sts\.token: invalid: .*invalid_grant: injected: correct regions\.{REGION}\.jobs",
        ),
    )

    def __init__(self, fake: FakeGcp, kept: Path) -> None:
        super().__init__(fake, kept)
        # obstore goes by the real time: by that all has expired, so that it asks each time.
        self.clock = self.project.clock = VirtualClock(SystemClock().now() - _DAY_SECONDS)
        # Others ask once more for what is refused with a 401.
        self.session = Session(AnonymousCredentials(), fake.url)
        self.region: dict[str, Any] = self.document["regions"][REGION]
        self.region["jobs"] = f"gs://{self.name}/jobs"
        self.region["job_account"] = f"castor-test-job@{self.name}.iam.gserviceaccount.com"

    def connect(self, session: Session | None = None) -> GcsJobStorage:  # type: ignore[override]
        return GcsJobStorage(self.settings, session or self.session, self.clock, QUICK)

    def calls(self) -> Mapping[str, int]:
        return self.project.calls

    def remove_place(self) -> None:
        del self.region["jobs"], self.region["job_account"]

    def put_region_first(self, place: str | None) -> None:
        other = {**self.region, "zones": ["europe-west4-a"], "jobs": place}
        if place is None:
            del other["jobs"], other["job_account"]
        here = self.document["regions"][REGION]
        self.document["regions"] = {"europe-west4": other, REGION: here}


@pytest.fixture
def site(fake: FakeGcp, tmp_path: Path) -> GcsSite:
    return GcsSite(fake, tmp_path)


class TestGcsJobStorage(JobStorageConformance, BoundedStorageConformance):
    pass


def test_the_accounts_token_stays_with_the_controller(site: GcsSite) -> None:
    account = site.region["job_account"]
    grant = site.connect().grant("digits", BUNDLE)
    generated, exchanged = (
        next(one for one in site.project.sent if one.action == action)
        for action in (GENERATE, EXCHANGE)
    )
    assert generated.parameters["name"] == f"projects/-/serviceAccounts/{account}"
    scope = "https://www.googleapis.com/auth/cloud-platform"
    assert generated.body == {"scope": [scope], "lifetime": f"{GRANT_SECONDS:.0f}s"}
    assert exchanged.body == boundary(grant.place, grant.bundle)
    assert account not in grant.credential["token"]
    assert grant.credential["token"] in site.project.tokens, "the narrow one"
    assert dict(grant.options) == {"base_url": site.fake.url}


def test_a_boundary_is_as_google_words_it() -> None:
    rules = boundary("gs://castor/jobs/digits", f"gs://castor/bundles/{BUNDLE}")
    objects = "resource.name.startsWith('projects/_/buckets/castor/objects/"
    lists = "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith("
    bucket = "//storage.googleapis.com/projects/_/buckets/castor"
    assert rules["accessBoundary"]["accessBoundaryRules"] == [
        {
            "availableResource": bucket,
            "availablePermissions": ["inRole:roles/storage.objectUser"],
            "availabilityCondition": {
                "expression": f"{objects}jobs/digits/') || {lists}'jobs/digits/')"
            },
        },
        {
            "availableResource": bucket,
            "availablePermissions": ["inRole:roles/storage.objectViewer"],
            "availabilityCondition": {"expression": f"{objects}bundles/{BUNDLE}')"},
        },
    ]
    (rule,) = boundary("gs://castor/jobs/digits", None)["accessBoundary"]["accessBoundaryRules"]
    assert "bundles" not in str(rule)


@pytest.mark.parametrize("name", ["x') || true || ('", "../b", "a*", "a//b", "a?"])
def test_no_boundary_is_made_from_a_place_with_quotation_marks(name: str) -> None:
    with pytest.raises(PermissionDenied, match="gets no credential"):
        boundary(f"gs://castor/jobs/{name}", None)


class Lapsing(Credentials):
    """Credentials that have to be renewed each time; `tokens` is what they get."""

    def __init__(self, *tokens: str) -> None:
        super().__init__(token=None)
        self.left = list(tokens)

    @property
    def valid(self) -> bool:
        return False

    def refresh(self, request: Any) -> None:
        if not self.left:
            raise RefreshError("Reauthentication is needed.")
        self.token = self.left.pop(0)


def test_the_controller_reads_with_its_own_token(site: GcsSite) -> None:
    reader = site.connect().grant("digits").credential["token"]
    site.bucket.put("jobs/digits/a", b"1")
    site.bucket.put("jobs/letters/a", b"1")
    storage = site.connect(Session(Lapsing(*[reader] * 9), site.fake.url))
    assert storage.jobs.get("digits/a") == b"1"
    with pytest.raises(PermissionDenied, match="letters/a: the credential does not allow it"):
        storage.jobs.get("letters/a")


def test_credentials_that_can_not_be_renewed_say_how_to_mend_them(site: GcsSite) -> None:
    said = rf"{REGION}: credentials: no credentials: Reauth.* is needed\.: run gcloud auth"
    with pytest.raises(PermissionDenied, match=said):
        site.connect(Session(Lapsing(), site.fake.url))
    storage = site.connect(Session(Lapsing("any", "any"), site.fake.url))
    with pytest.raises(ProviderError, match="Reauthentication is needed"):
        storage.jobs.get("digits/a")


def test_what_fails_for_now_is_tried_again(site: GcsSite) -> None:
    grant = site.connect().grant("digits")
    objects = Objects(grant.place, always(grant), 30.0)
    site.faults.add(
        Fault("storage.objects.insert", code="rateLimitExceeded", status=429),
        Fault("storage.objects.insert", code="backendError", status=503),
        Fault("storage.objects.insert", When.LOST_BEFORE),
        Fault("storage.objects.insert", When.LOST_AFTER),
    )
    objects.put("a", b"1")
    assert objects.get("a") == b"1"
    assert site.calls()["storage.objects.insert"] == 5


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("", code="backendError", status=503, times=None), Unavailable),
        (Fault("", When.LOST_BEFORE, times=None), Unavailable),
        (Fault("", code="forbidden", status=403), PermissionDenied),
        (Fault("", code="authError", status=401), PermissionDenied),
    ],
)
def test_a_failure_is_one_line_that_names_the_object(
    site: GcsSite, fault: Fault, error: type[Exception]
) -> None:
    grant = site.connect().grant("digits")
    objects = Objects(grant.place, always(grant), 0.3)
    objects.put("some/name", b"1")
    calls: dict[str, Callable[[], object]] = {
        "insert": lambda: objects.put("some/name", b"1"),
        "get": lambda: objects.get("some/name"),
        "list": lambda: objects.listed("some/name"),
        "delete": lambda: objects.remove(["some/name"]),
    }
    for action, call in calls.items():
        site.faults.add(replace(fault, action=f"storage.objects.{action}"))
        with pytest.raises(error) as told:
            call()
        assert str(told.value).startswith(f"{grant.place}/some/name: ")
        assert "\n" not in str(told.value)
        site.faults.clear()


@pytest.mark.gcp
@pytest.mark.parametrize("action", [GENERATE, EXCHANGE])
@pytest.mark.parametrize(
    "way", [way for way, fault in WAYS.items() if fault.when is not When.IN_REPLY]
)
def test_a_fault_costs_no_more_than_one_try(site: GcsSite, action: str, way: str) -> None:
    storage = site.connect()
    site.faults.add(replace(WAYS[way], action=action))
    with pytest.raises(ProviderError) as told:
        storage.grant("digits")
    assert "\n" not in str(told.value)
    assert str(told.value).startswith(f"{REGION}: ")
    assert storage.grant("digits").credential["token"] in site.project.tokens


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ({"job_account": None}, "job_account is missing: jobs and job_account go together"),
        ({"jobs": None}, "jobs is missing: jobs and job_account go together"),
        ({"jobs": "castor/jobs"}, 'jobs: "castor/jobs" is not valid: write it like gs://bucket'),
    ],
)
def test_what_is_wrong_with_the_keys_is_told(
    site: GcsSite, region: dict[str, str | None], said: str
) -> None:
    told = {**site.region, **region}
    site.document["regions"][REGION] = {k: v for k, v in told.items() if v is not None}
    with pytest.raises(SpecError, match=said):
        _ = site.settings


def test_a_document_of_terraform_with_a_place_for_files_is_read(site: GcsSite) -> None:
    settings: GcpSettings = parse_settings(json.dumps(site.document), "pools.json")
    assert settings.regions[REGION].jobs == f"gs://{site.name}/jobs"
