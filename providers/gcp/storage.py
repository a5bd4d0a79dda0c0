"""Jobs' files in Cloud Storage: one prefix a job, and one token for each, good for nothing else.

The token is that of a service account that Terraform makes, taken for an hour, and then exchanged
for one within a credential access boundary: both are short-lived, and nothing is made in the
project. https://cloud.google.com/iam/docs/downscoping-short-lived-credentials
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, Unavailable
from autoscaler.domain.storage import StorageGrant
from providers.cloud.storage import (
    GRANT_SECONDS,
    OWN_SECONDS,
    CloudJobStorage,
    bucket_and_name,
    place_of_jobs,
)
from providers.gcp.errors import Call
from providers.gcp.rest import send
from providers.gcp.session import Session
from providers.gcp.settings import GcpSettings, Patience

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
# Upper bounds: nothing is allowed that the account's own roles do not allow, too.
_KEEPS: Final = "inRole:roles/storage.objectUser"
_READS: Final = "inRole:roles/storage.objectViewer"
# What a fake is told: without a token obstore would ask the metadata server for one.
_ANY: Final = "any"


class GcsJobStorage(CloudJobStorage):
    """The storage that `settings` name: that of the first region with `jobs`.

    `session` has the controller's credentials. Safe to share between threads.

    Raises:
        SpecError: no region names one.
        PermissionDenied: the credentials do not hold.
        NotFound: obstore is not installed.
    """

    def __init__(
        self,
        settings: GcpSettings,
        session: Session,
        clock: Clock,
        patience: Patience = Patience(),
    ) -> None:
        self._region, self._place, self._account = place_of_jobs(
            settings.regions, lambda region: region.job_account, "job_account"
        )
        self._session = session
        self._answer_seconds = patience.answer_seconds
        self._options: dict[str, str] = {}
        if session.endpoint_url is not None:
            self._options["base_url"] = session.endpoint_url
        super().__init__(self._place, clock)

    def _made(self, place: str, bundle: str | None) -> StorageGrant:
        try:
            token, expires_seconds = self._token_of_account()
            narrowed = self._narrowed(token, boundary(place, bundle))
        except NotFound as error:  # the account, or what the boundary names
            raise PermissionDenied(str(error)) from error
        return StorageGrant(place, self._options, {"token": narrowed}, expires_seconds, bundle)

    def _token_of_account(self) -> tuple[str, float]:
        """One that may do all that jobs may, and its end. It does not leave this object."""
        call = Call(self._region, "serviceAccounts.generateAccessToken")
        account = f"projects/-/serviceAccounts/{self._account}"
        url = f"{self._session.base('iamcredentials')}/v1/{account}:generateAccessToken"
        body = {"scope": [_SCOPE], "lifetime": f"{GRANT_SECONDS}s"}
        told = send(self._session, call, "POST", url, self._answer_seconds, json=body)
        try:
            expires = datetime.fromisoformat(str(told["expireTime"]))
            return str(told["accessToken"]), expires.timestamp()
        except (KeyError, ValueError) as error:
            raise Unavailable(f"{call}: the reply can't be read") from error

    def _narrowed(self, token: str, bounds: Mapping[str, Any]) -> str:
        """It expires when the other one does."""
        call = Call(self._region, "sts.token")
        form = {
            "grant_type": _EXCHANGE,
            "subject_token": token,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
            "options": json.dumps(bounds, separators=(",", ":")),
        }
        url = f"{self._session.base('sts')}/v1/token"
        session = self._session.without_credentials
        told = send(session, call, "POST", url, self._answer_seconds, data=form)
        if not told.get("access_token"):
            raise Unavailable(f"{call}: the reply can't be read")
        return str(told["access_token"])

    def _own(self) -> StorageGrant:
        """By what google-auth has for the controller now."""
        token = self._session.token(Call(self._region, "credentials"))
        until_seconds = self._clock.now() + OWN_SECONDS
        credential = {"token": token or _ANY}
        return StorageGrant(self._place, self._options, credential, until_seconds)


def boundary(place: str, bundle: str | None) -> Mapping[str, Any]:
    """What a grant allows: all that is under `place`, and to read `bundle`.

    A list is no access to an object: it is allowed by the prefix that it asks for.
    """
    bucket, name = bucket_and_name(place)
    lists = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
    under = f"{_begins(bucket, f'{name}/')} || {lists}.startsWith('{name}/')"
    rules = [_rule(bucket, _KEEPS, under)]
    if bundle is not None:
        bucket, name = bucket_and_name(bundle)
        rules.append(_rule(bucket, _READS, _begins(bucket, name)))
    return {"accessBoundary": {"accessBoundaryRules": rules}}


def _begins(bucket: str, name: str) -> str:
    return f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{name}')"


def _rule(bucket: str, permission: str, condition: str) -> Mapping[str, Any]:
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [permission],
        "availabilityCondition": {"expression": condition},
    }
