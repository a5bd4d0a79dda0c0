"""Logins that terminals have begun and people have not approved yet, in the leader's memory.

The flow is that of RFC 8628: a terminal gets a secret device code and a short user code. A person
opens a page with the user code, and approves there. A cookie binds all requests of that page to
one browser. Codes, cookies and states are kept as hashes.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import Conflict, NotAllowed, NotFound, Throttled
from autoscaler.service.access.people import digest
from autoscaler.service.access.wrong_tries import WrongTries, network
from autoscaler.wire.access_messages import LoginStatus

LOGIN_SECONDS: Final = 600.0
"""Time within which a person approves a login."""

INTERVAL_SECONDS: Final = 5.0
"""Least time between two requests of a terminal for its token."""

_SLOWER_SECONDS: Final = 5.0
_LONGEST_INTERVAL_SECONDS: Final = 60.0
# A request may overtake the one before on the network by so much.
_JITTER_SECONDS: Final = 0.5
MOST_PENDING: Final = 1_000
MOST_OF_ADDRESS: Final = 10
MOST_VISITS: Final = 5
# Consonants that no one mistakes for another letter or a digit, and that spell no words.
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
_HALF: Final = 4

AGAIN: Final = "run castor login again"


@dataclass(frozen=True, slots=True)
class LoginTerminal:
    """Terminal of a login: the name of its host, as it claims, and the address it comes from."""

    host: str
    address: str


@dataclass(slots=True, eq=False)
class PendingLogin:
    """Login of a terminal. `person` is the one who approved it; None: nobody yet.

    `is_browser`: the terminal is the browser itself, which opens the page at once.
    """

    terminal: LoginTerminal
    device_hash: str
    user_code: str
    ends_seconds: float
    interval_seconds: float = INTERVAL_SECONDS
    asked_seconds: float = float("-inf")
    visits: int = 0
    is_denied: bool = False
    person: str | None = None
    is_browser: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody has approved or denied the login."""
        return self.person is None and not self.is_denied


@dataclass(slots=True, eq=False)
class LoginVisit:
    """Visit of one browser to a login's page.

    `state`, `nonce` and `verifier` (PKCE) bind the answer of the identity provider to the visit.
    `state` is used once: None afterwards. `person` is the one whom the provider named, None
    before; `form_token` is that of the form that approves the login.
    """

    login: PendingLogin
    state: str | None = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    person: str | None = None


class PendingLogins:
    """All pending logins and the visits to their pages. Threads may share this."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._by_device: dict[str, PendingLogin] = {}
        self._by_code: dict[str, PendingLogin] = {}
        self._visits: dict[str, LoginVisit] = {}
        self._wrong_codes = WrongTries(clock, "codes")

    def begin(self, terminal: LoginTerminal, is_browser: bool = False) -> tuple[str, PendingLogin]:
        """Begin a login; return its device code and the login.

        Raises:
            Throttled: too many logins are pending, of this address or of all.
        """
        with self._lock:
            self._drop_ended()
            self._require_room(network(terminal.address))
            device_code, user_code = secrets.token_urlsafe(32), self._new_code()
            ends_seconds = self._clock.monotonic() + LOGIN_SECONDS
            login = PendingLogin(terminal, digest(device_code), user_code, ends_seconds)
            login.is_browser = is_browser
            self._by_device[login.device_hash] = login
            self._by_code[digest(user_code)] = login
            return device_code, login

    def visit(self, user_code: str, address: str) -> tuple[str, LoginVisit]:
        """Begin a visit to the page of a user code; return the browser's cookie and the visit.

        Raises:
            NotFound: no pending login has this code.
            Throttled: too many wrong codes came from this address.
            Conflict: the login is decided, or was opened too often.
        """
        with self._lock:
            self._drop_ended()
            self._wrong_codes.require_few(address)
            login = self._by_code.get(digest(normal_code(user_code)))
            if login is None:
                self._wrong_codes.count(address)
                raise NotFound(f"this code is unknown or has expired: {AGAIN}")
            _require_open(login)
            if login.visits >= MOST_VISITS:
                raise Conflict(f"the page of this login was opened too often: {AGAIN}")
            login.visits += 1
            cookie, visit = secrets.token_urlsafe(32), LoginVisit(login)
            self._visits[digest(cookie)] = visit
            return cookie, visit

    def answered(self, cookie: str | None, state: str) -> LoginVisit:
        """Return the visit that an answer of the identity provider belongs to, once.

        Raises:
            NotAllowed: it belongs to another browser, to none, or was used before.
            Conflict: the login is decided.
        """
        with self._lock:
            visit = self._visit(cookie)
            if visit.state is None or not _is_equal(visit.state, state):
                raise NotAllowed(f"this answer of the provider is not for this page: {AGAIN}")
            visit.state = None
            return visit

    def decide(self, cookie: str | None, form_token: str, is_approved: bool) -> LoginVisit:
        """Approve or deny the login of a visit; return the visit.

        Raises:
            NotAllowed: the form is not one of this browser, or the provider named nobody.
            Conflict: the login is decided.
        """
        with self._lock:
            visit = self._visit(cookie)
            if visit.person is None or not _is_equal(visit.form_token, form_token):
                raise NotAllowed(f"this form is not one of this page: {AGAIN}")
            if is_approved:
                visit.login.person = visit.person
            else:
                visit.login.is_denied = True
            return visit

    def ask(self, device_code: str) -> tuple[LoginStatus, PendingLogin | None]:
        """Return the state of a login to its terminal; None: the login has ended or is unknown.

        A granted or denied login ends, so that its code works once.
        """
        with self._lock:
            now_seconds = self._clock.monotonic()
            login = self._by_device.get(digest(device_code))
            if login is None or login.ends_seconds <= now_seconds:
                return LoginStatus.EXPIRED, None
            asked_seconds, login.asked_seconds = login.asked_seconds, now_seconds
            if now_seconds - asked_seconds < login.interval_seconds - _JITTER_SECONDS:
                slower_seconds = login.interval_seconds + _SLOWER_SECONDS
                login.interval_seconds = min(slower_seconds, _LONGEST_INTERVAL_SECONDS)
                return LoginStatus.SLOW_DOWN, login
            if login.is_open:
                return LoginStatus.PENDING, login
            self._drop(login)
            return LoginStatus.DENIED if login.is_denied else LoginStatus.GRANTED, login

    def end(self, login: PendingLogin) -> None:
        """End a login whose token is not asked for by a terminal."""
        with self._lock:
            self._drop(login)

    def put_back(self, login: PendingLogin) -> None:
        """Keep a granted login whose token could not be stored, so that the terminal may retry."""
        with self._lock:
            self._by_device[login.device_hash] = login

    def _visit(self, cookie: str | None) -> LoginVisit:
        visit = None if cookie is None else self._visits.get(digest(cookie))
        if visit is None:
            raise NotAllowed(
                "this login was opened in another browser, or has expired: open the page that "
                "castor login printed in one browser, with cookies"
            )
        if visit.login.ends_seconds <= self._clock.monotonic():
            raise NotAllowed(f"this login has expired: {AGAIN}")
        _require_open(visit.login)
        return visit

    def _require_room(self, wanted_network: str) -> None:
        """Check that another login may begin from a network.

        Raises:
            Throttled: too many are pending.
        """
        logins = self._by_device.values()
        of_network = [
            login for login in logins if network(login.terminal.address) == wanted_network
        ]
        for pending, most in ((of_network, MOST_OF_ADDRESS), (list(logins), MOST_PENDING)):
            if len(pending) >= most:
                first_seconds = min(login.ends_seconds for login in pending)
                wait_seconds = first_seconds - self._clock.monotonic()
                raise Throttled(
                    f"{len(pending)} logins are pending: approve or deny one, or try again in "
                    f"{wait_seconds:.0f} s",
                    wait_seconds,
                )

    def _new_code(self) -> str:
        """Return a user code that no pending login has, such as BCDF-GHJK."""
        while True:
            letters = "".join(secrets.choice(_LETTERS) for _ in range(2 * _HALF))
            code = f"{letters[:_HALF]}-{letters[_HALF:]}"
            if digest(code) not in self._by_code:
                return code

    def _drop_ended(self) -> None:
        now_seconds = self._clock.monotonic()
        for login in [*self._by_device.values()]:
            if login.ends_seconds <= now_seconds:
                self._drop(login)

    def _drop(self, login: PendingLogin) -> None:
        self._by_device.pop(login.device_hash, None)
        self._by_code.pop(digest(login.user_code), None)
        for cookie_hash, visit in [*self._visits.items()]:
            if visit.login is login:
                del self._visits[cookie_hash]


def normal_code(text: str) -> str:
    """Return a user code as it was printed, from one that a person typed."""
    letters = "".join(letter for letter in text.upper() if letter in _LETTERS)
    return f"{letters[:_HALF]}-{letters[_HALF:]}"


def _require_open(login: PendingLogin) -> None:
    if not login.is_open:
        raise Conflict("this login was approved or denied before")


def _is_equal(expected: str, presented: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on them."""
    return hmac.compare_digest(expected.encode(), presented.encode(errors="replace"))
