"""Google's clients with one credential, each made when it is first needed."""

from __future__ import annotations

import threading
from typing import Any, Final

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport import DEFAULT_REFRESH_STATUS_CODES
from google.auth.transport.requests import AuthorizedSession, Request

from autoscaler.domain.errors import PermissionDenied
from providers.cloud.hosts import is_url_here
from providers.gcp.errors import CALL_ERRORS, WAY_TO_CREDENTIALS, Call, provider_error

_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)


class Session:
    """The way to Google Cloud, or to what stands at `endpoint_url` in its place. Thread-safe."""

    def __init__(self, credentials: Any, endpoint_url: str | None = None) -> None:
        self.endpoint_url = endpoint_url
        self._credentials = credentials
        self._is_anonymous = isinstance(credentials, AnonymousCredentials)
        self._clients: dict[type, Any] = {}
        self._local = threading.local()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()

    def client(self, kind: type) -> Any:
        """The client of that class."""
        with self._lock:
            if kind not in self._clients:
                options = ClientOptions(api_endpoint=self.endpoint_url)
                self._clients[kind] = kind(credentials=self._credentials, client_options=options)
            return self._clients[kind]

    @property
    def http(self) -> AuthorizedSession:
        """For what Google has no client of, over REST, that is light; each thread has its own."""
        if not hasattr(self._local, "http"):
            # What was refused with a 401 is sent again with a new token, where there can be one.
            again = () if self._is_anonymous else DEFAULT_REFRESH_STATUS_CODES
            self._local.http = AuthorizedSession(self._credentials, refresh_status_codes=again)
        return self._local.http

    @property
    def without_credentials(self) -> Session:
        """The same way, for the one service that takes no header of them."""
        return Session(AnonymousCredentials(), self.endpoint_url)

    def token(self, call: Call) -> str | None:
        """A token of the credentials, for `call`; None where they have none.

        It holds for some minutes.

        Raises:
            ProviderError: there is none to be had, or not now.
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

    def base(self, service: str) -> str:
        """Where a service is, such as ``storage``."""
        return self.endpoint_url or f"https://{service}.googleapis.com"


def open_session(endpoint_url: str | None = None) -> Session:
    """One with the credentials of the environment.

    An endpoint on this machine is a fake: where there are no credentials, it gets none.

    Raises:
        PermissionDenied: there are none, or what the environment names can't be used.
    """
    try:
        credentials, _ = google.auth.default(scopes=_SCOPES)
    except (GoogleAuthError, OSError, ValueError) as error:
        if is_url_here(endpoint_url):
            return Session(AnonymousCredentials(), endpoint_url)
        words = " ".join(str(error).split())[:300].rstrip(".")
        raise PermissionDenied(f"no credentials: {words}: {WAY_TO_CREDENTIALS}") from error
    return Session(credentials, endpoint_url)
