"""Jobs' files in Cloud Storage: one prefix for each job, and tokens limited to this prefix.

The token of a service account that Terraform creates is requested for an hour. It is exchanged for
a token within a credential access boundary. Both are short-lived, and no resource is created.
https://cloud.google.com/iam/docs/downscoping-short-lived-credentials
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, Unavailable
from autoscaler.domain.storage import StorageGrant
from autoscaler.market.egress import network_of
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
from providers.gcp.settings import CallTimeouts, GcpSettings

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
# Upper bounds: an action needs the permission of the account's own roles, too.
_WRITE_ROLE: Final = "inRole:roles/storage.objectUser"
_READ_ROLE: Final = "inRole:roles/storage.objectViewer"
# Token for a fake: without a token obstore would request one from the metadata server.
_FAKE_TOKEN: Final = "any"


class GcsJobStorage(CloudJobStorage):
    """Job storage in Cloud Storage, at the location of the settings' first region with `jobs`.

    `session` has the controller's credentials. Thread-safe.

    Raises:
        SpecError: no region has `jobs`.
        PermissionDenied: the credentials are not valid.
        NotFound: obstore is not installed.
    """

    def __init__(
        self,
        settings: GcpSettings,
        session: Session,
        clock: Clock,
        patience: CallTimeouts = CallTimeouts(),
    ) -> None:
        self._region, self._place, self._account = place_of_jobs(
            settings.regions, lambda region: region.job_account, "job_account"
        )
        self._session = session
        self._answer_seconds = patience.answer_seconds
        self._options: dict[str, str] = {}
        if session.endpoint_url is not None:
            self._options["base_url"] = session.endpoint_url
        super().__init__(self._place, network_of("gcp", self._region), clock)

    def _made(self, place: str, bundle: str | None) -> StorageGrant:
        try:
            token, expires_seconds = self._account_token()
            narrowed = self._narrow(token, boundary(place, bundle))
        except NotFound as error:  # the account, or a resource in the boundary
            raise PermissionDenied(str(error)) from error
        return StorageGrant(place, self._options, {"token": narrowed}, expires_seconds, bundle)

    def _account_token(self) -> tuple[str, float]:
        """Return the job account's token and its end in epoch seconds.

        The token has access to all jobs' files and must not leave this object.
        """
        call = Call(self._region, "serviceAccounts.generateAccessToken")
        account = f"projects/-/serviceAccounts/{self._account}"
        url = f"{self._session.base('iamcredentials')}/v1/{account}:generateAccessToken"
        body = {"scope": [_SCOPE], "lifetime": f"{GRANT_SECONDS}s"}
        reply = send(self._session, call, "POST", url, self._answer_seconds, json=body)
        try:
            expires = datetime.fromisoformat(str(reply["expireTime"]))
            return str(reply["accessToken"]), expires.timestamp()
        except (KeyError, ValueError) as error:
            raise Unavailable(f"{call}: the reply can't be read") from error

    def _narrow(self, token: str, bounds: Mapping[str, Any]) -> str:
        """Return a token limited to `bounds`, which expires with the given token."""
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
        reply = send(session, call, "POST", url, self._answer_seconds, data=form)
        if not reply.get("access_token"):
            raise Unavailable(f"{call}: the reply can't be read")
        return str(reply["access_token"])

    def _own(self) -> StorageGrant:
        """Return the controller's access by its current credentials."""
        token = self._session.token(Call(self._region, "credentials"))
        until_seconds = self._clock.now() + OWN_SECONDS
        credential = {"token": token or _FAKE_TOKEN}
        return StorageGrant(self._place, self._options, credential, until_seconds)


def boundary(place: str, bundle: str | None) -> Mapping[str, Any]:
    """Return a boundary that allows reading and writing under `place`, and reading `bundle`.

    A list accesses no object, so a list is allowed by the prefix in its request.
    """
    bucket, name = bucket_and_name(place)
    lists = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
    under = f"{_name_condition(bucket, f'{name}/')} || {lists}.startsWith('{name}/')"
    rules = [_rule(bucket, _WRITE_ROLE, under)]
    if bundle is not None:
        bucket, name = bucket_and_name(bundle)
        rules.append(_rule(bucket, _READ_ROLE, _name_condition(bucket, name)))
    return {"accessBoundary": {"accessBoundaryRules": rules}}


def _name_condition(bucket: str, name: str) -> str:
    return f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{name}')"


def _rule(bucket: str, permission: str, condition: str) -> Mapping[str, Any]:
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [permission],
        "availabilityCondition": {"expression": condition},
    }
