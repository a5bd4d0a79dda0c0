"""Sessions of browsers: access tokens of their own, in a cookie that no script reads.

A session is a token of its person, called `browser-...`, for at most twelve hours. It is listed,
revoked and limited like all others: it permits no more than the token that began it, and ends no
later. Forms of a session's pages carry a token that is derived from the session's, so that no
other site can send them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.access import BROWSER_TOKEN, Identity
from autoscaler.domain.errors import Forbidden, NotAllowed
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.gate import AccessGate, Recorded
from autoscaler.service.access.people import digest
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.access.wrong_tries import WrongTries
from autoscaler.store.store import Store
from autoscaler.wire.access_messages import BrowserLink, NewToken, TokenRequest

SESSION_SECONDS: Final = 12 * 3600.0
"""Longest time for which a browser stays signed in."""

LINK_SECONDS: Final = 60.0
"""Time within which a link of `castor open` is opened."""

_MOST_LINKS: Final = 1_000
_LONGEST_TOKEN: Final = 200
_RANDOM_BYTES: Final = 4


def new_session_name() -> str:
    """Return a new name for the token of a session, such as browser-1a2b3c4d."""
    return BROWSER_TOKEN + secrets.token_hex(_RANDOM_BYTES)


def form_token(session: str) -> str:
    """Return the token of the forms of a session."""
    return hmac.new(session.encode(), b"forms of pages", hashlib.sha256).hexdigest()


def is_form_token(session: str, presented: str) -> bool:
    """Return whether a form was made for a session."""
    return hmac.compare_digest(form_token(session).encode(), presented.encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class _Link:
    """Link that signs a browser in once, as the person who asked for it."""

    identity: Identity
    ends_seconds: float


class BrowserSessions:
    """Beginning and end of sessions. `url` is the address of the controller's pages."""

    def __init__(self, gate: AccessGate, url: str) -> None:
        self._gate = gate
        self._people = gate.authentication.people
        self._url = url
        self._lock = Lock()
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._wrong = WrongTries(gate.clock, "tokens")

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach the pages by HTTPS."""
        return self._url.startswith("https://")

    def sign_in(self, token: str, address: str) -> NewToken:
        """Return the token of a new session, for a person who pasted a token.

        Raises:
            NotAllowed: the token is unknown, revoked or expired.
            Forbidden: it is a service token, which has no pages.
            Throttled: too many wrong tokens came from this address.
        """
        with self._lock:
            self._wrong.require_few(address)
        try:
            if len(token) > _LONGEST_TOKEN:
                raise NotAllowed("this is longer than a token: paste one token alone")
            identity = self._people.identity(token)
        except NotAllowed:
            with self._lock:
                self._wrong.count(address)
            raise
        return self._begin(identity, f"signed in from {address} with token {identity.token}")

    def link(self, identity: Identity) -> BrowserLink:
        """Return a link that signs one browser in, once.

        Raises:
            Forbidden: the requester's token is a service token.
        """
        _require_no_service(identity)
        code = secrets.token_urlsafe(32)
        ends_seconds = self._gate.clock.monotonic() + LINK_SECONDS
        with self._lock:
            self._links[digest(code)] = _Link(identity, ends_seconds)
            if len(self._links) > _MOST_LINKS:
                self._links.popitem(last=False)
        return BrowserLink(f"{self._url}/open?code={code}", LINK_SECONDS)

    def open(self, code: str, address: str) -> NewToken:
        """Return the token of a new session, for a browser that opens a link.

        Raises:
            NotAllowed: the link is unknown, expired, or was opened before.
            Throttled: too many wrong links came from this address.
        """
        with self._lock:
            self._wrong.require_few(address)
            link = self._links.pop(digest(code), None)
            if link is None or link.ends_seconds <= self._gate.clock.monotonic():
                self._wrong.count(address)
                raise NotAllowed(
                    f"this link has been opened before, or is older than {LINK_SECONDS:.0f} s: "
                    "run castor open again"
                )
        return self._begin(link.identity, f"castor open, from {address}")

    def sign_out(self, identity: Identity) -> None:
        """End the session of a request. A token that is no session stays."""
        if not identity.token.startswith(BROWSER_TOKEN):
            return
        self._people.revoke(identity.person, identity.token)
        change = Recorded(f"{identity.person}/{identity.token}", after="signed out")
        self._gate.record(identity, AccessAction.REVOKE_TOKEN, change)

    def _begin(self, identity: Identity, how: str) -> NewToken:
        _require_no_service(identity)
        now_seconds = self._gate.clock.now()
        left_seconds = SESSION_SECONDS
        if identity.ends_seconds is not None:
            left_seconds = min(left_seconds, identity.ends_seconds - now_seconds)
        request = TokenRequest(new_session_name(), valid_seconds=left_seconds)
        session = self._people.create(identity.person, request, identity)
        change = Recorded(f"{session.person}/{session.name}", after=how)
        self._gate.record(identity, AccessAction.CREATE_TOKEN, change)
        return session


def _require_no_service(identity: Identity) -> None:
    if identity.is_service:
        raise Forbidden(
            f"the service token {identity.token} has no pages: sign in with a token that "
            f"{identity.person} has for work by hand"
        )


def open_sessions(
    url: str, authentication: Authentication, store: Store, clock: Clock
) -> BrowserSessions:
    """Return the sessions of a controller at `url`."""
    return BrowserSessions(AccessGate(authentication, store, clock), url)
