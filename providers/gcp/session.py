"""Google's clients with one set of credentials, each created when first needed."""

from __future__ import annotations

import threading
from typing import Any, Final

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport import DEFAULT_REFRESH_STATUS_CODES
from google.auth.transport.requests import AuthorizedSession, Request
from google.oauth2.credentials import Credentials as PersonalCredentials

from autoscaler.domain.errors import PermissionDenied
from providers.cloud.hosts import is_url_here
from providers.gcp.errors import CALL_ERRORS, WAY_TO_CREDENTIALS, Call, provider_error

_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)


class Session:
    """Connection to Google Cloud, or to `endpoint_url` in its place. Thread-safe."""

    def __init__(self, credentials: Any, endpoint_url: str | None = None) -> None:
        self.endpoint_url = endpoint_url
        self._credentials = credentials
        self._is_anonymous = isinstance(credentials, AnonymousCredentials)
        self._clients: dict[type, Any] = {}
        self._local = threading.local()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()

    def client(self, kind: type) -> Any:
        """Return the client of a class, created when first needed."""
        with self._lock:
            if kind not in self._clients:
                options = ClientOptions(api_endpoint=self.endpoint_url)
                self._clients[kind] = kind(credentials=self._credentials, client_options=options)
            return self._clients[kind]

    @property
    def http(self) -> AuthorizedSession:
        """HTTP session for services without a lightweight client; each thread has its own."""
        if not hasattr(self._local, "http"):
            # A request refused with a 401 is repeated with a new token, unless anonymous.
            codes = () if self._is_anonymous else DEFAULT_REFRESH_STATUS_CODES
            self._local.http = AuthorizedSession(self._credentials, refresh_status_codes=codes)
        return self._local.http

    @property
    def without_credentials(self) -> Session:
        """Session without credentials, for the token service, which accepts no such header."""
        return Session(AnonymousCredentials(), self.endpoint_url)

    def token(self, call: Call) -> str | None:
        """Return a token of the credentials; None for anonymous ones.

        The token is valid for some minutes. Errors name `call`.

        Raises:
            ProviderError: the credentials can't be refreshed.
        """
        if self._is_anonymous:
            return None
        try:
            with self._refreshing:
                if not self._credentials.valid:
                    self._credentials.refresh(Request())
        except CALL_ERRORS as error:
            raise provider_error(error, call) from error
        return str(self._credentials.token)

    def quota_headers(self, project: str) -> dict[str, str]:
        """Return the header that charges a call to the quota of `project`; empty for accounts.

        Calls of a service account count against the project of the account. The header would need
        the permission serviceusage.services.use there. Calls with a person's own credentials
        count against gcloud's project, where the API is not enabled, unless the header names
        another.
        """
        is_person = isinstance(self._credentials, PersonalCredentials)
        return {"X-Goog-User-Project": project} if is_person else {}

    def base(self, service: str) -> str:
        """Return the base URL of a service, such as ``storage``."""
        return self.endpoint_url or f"https://{service}.googleapis.com"


def open_session(endpoint_url: str | None = None) -> Session:
    """Return a session with the credentials of the environment.

    An endpoint on this machine is a fake. Its session is anonymous if there are no credentials.

    Raises:
        PermissionDenied: there are no credentials, or those in the environment can't be used.
    """
    try:
        credentials, _ = google.auth.default(scopes=_SCOPES)
    except (GoogleAuthError, OSError, ValueError) as error:
        if is_url_here(endpoint_url):
            return Session(AnonymousCredentials(), endpoint_url)
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise PermissionDenied(f"no credentials: {reason}: {WAY_TO_CREDENTIALS}") from error
    return Session(credentials, endpoint_url)
