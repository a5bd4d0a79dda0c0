"""Jobs' files in Cloud Storage: what each job's token reaches, and what is said without one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.auth.exceptions import RefreshError
from google.oauth2.credentials import Credentials

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.errors import PermissionDenied, SpecError, Unavailable
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
from tests.fakes.faults import Fault
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import QUICK, REGION, GcpWorld

GENERATE = "iamcredentials.projects.serviceAccounts.generateAccessToken"
EXCHANGE = "sts.token"
_DAY_SECONDS = 86_400.0


class GcsSite(GcpWorld):
    """For `tests.conformance.storage`."""

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
            "these credentials do not hold: run gcloud auth",
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
        self.region: dict[str, Any] = self.document["regions"][REGION]
        self.region["jobs"] = f"gs://{self.name}/jobs"
        self.region["job_account"] = f"castor-test-job@{self.name}.iam.gserviceaccount.com"

    def connect(self, session: Session | None = None) -> GcsJobStorage:  # type: ignore[override]
        return GcsJobStorage(self.settings, session or self.session, self.clock, QUICK)

    def calls(self) -> Mapping[str, int]:
        return self.project.calls

    def have_no_place(self) -> None:
        del self.region["jobs"], self.region["job_account"]

    def have_another_region_first(self, place: str | None) -> None:
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


class Lapsing(Credentials):
    """Credentials that have to be renewed, and can't be after the first time."""

    def __init__(self) -> None:
        super().__init__(token=None)
        self.times = 0

    @property
    def valid(self) -> bool:
        return False

    def refresh(self, request: Any) -> None:
        self.times += 1
        if self.times > 1:
            raise RefreshError("Reauthentication is needed.")
        self.token = "mine"


def test_the_controller_reads_with_its_own_token(site: GcsSite) -> None:
    credentials = Lapsing()
    session = Session(credentials, site.fake.url)
    assert session.without_credentials.http.credentials is not credentials
    with pytest.raises(
        PermissionDenied, match=rf"{REGION}: credentials: no credentials: .*gcloud"
    ):
        site.connect(session)
    assert credentials.token == "mine"


def test_an_answer_that_says_nothing_of_json_is_told(site: GcsSite) -> None:
    storage = site.connect()
    site.bucket.put("jobs/digits/a", b"1")
    site.faults.add(Fault("storage.objects.get", code="forbidden", status=403))
    grant = storage.grant("digits")
    with pytest.raises(PermissionDenied, match=r"gs://.*/jobs/digits/a: the credential does not"):
        Objects(grant.place, always(grant), 0.3).get("a")
    site.faults.add(Fault("storage.objects.get", code="backendError", status=503, times=None))
    with pytest.raises(Unavailable, match=r"gs://.*/jobs/digits/a: .*503"):
        Objects(grant.place, always(grant), 0.3).get("a")


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ({"job_account": None}, "job_account is missing: jobs and job_account go together"),
        ({"jobs": None}, "jobs is missing: jobs and job_account go together"),
        ({"jobs": "castor/jobs"}, 'jobs: "castor/jobs" is none: write it like gs://bucket'),
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
