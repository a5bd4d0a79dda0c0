"""Logins of people through an OpenID Connect provider, for terminals without a token.

A terminal begins a login, a person proves a name to the provider and approves in the browser, and
the terminal gets a usual token of that person. Which person that is, and who may be new, is
decided here; `OidcProvider` speaks with the provider.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from autoscaler.clock import Clock
from autoscaler.domain.access import (
    BROWSER_TOKEN,
    LOGIN_TOKEN,
    Identity,
    Person,
    Role,
    require_person_name,
)
from autoscaler.domain.errors import Forbidden, NotAllowed, NotFound, SpecError, StoreError
from autoscaler.domain.text import quoted
from autoscaler.extras import from_extras
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.browser_sessions import SESSION_SECONDS, new_session_name
from autoscaler.service.access.gate import AccessGate, Recorded
from autoscaler.service.access.oidc_settings import EMAIL, OidcSettings
from autoscaler.service.access.pending_logins import (
    LOGIN_SECONDS,
    LoginTerminal,
    LoginVisit,
    PendingLogin,
    PendingLogins,
)
from autoscaler.service.access.permissions import AccessAction
from autoscaler.store.store import Store
from autoscaler.wire.access_messages import (
    BegunLogin,
    LoginReply,
    LoginRequest,
    LoginStatus,
    NewToken,
)

if TYPE_CHECKING:
    from autoscaler.service.access.oidc import OidcProvider

_log = logging.getLogger(__name__)

LOGIN_PATH: Final = "/login"
CALLBACK_PATH: Final = "/login/callback"
# A host's name is shown to a person who decides by it: no words, spaces or marks of direction.
_NO_HOST: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_HOST: Final = 64
_HOST_IN_NAME: Final = 20
_RANDOM_BYTES: Final = 3
_DENIED_AT_PROVIDER: Final = "access_denied"


class LoginProvider(Protocol):
    """Identity provider that people log in at."""

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Return the provider's page at which a person logs in.

        Raises:
            Unavailable: the provider does not answer.
        """
        ...

    def name(self, code: str, nonce: str, verifier: str) -> str:
        """Return the person's name, as the provider's answer to a page's `code` proves it.

        Raises:
            NotAllowed: the answer proves nothing.
            Unavailable: the provider does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoginPage:
    """Page of the provider to send a browser to, and the cookie of the visit."""

    url: str
    cookie: str


@dataclass(frozen=True, slots=True)
class LoginQuestion:
    """Question to a person in the browser: whether a terminal may act for them.

    `is_browser`: the terminal is this browser, which needs no question.
    """

    person: Person
    user_code: str
    terminal: LoginTerminal
    form_token: str
    is_browser: bool = False


class Logins:
    """Logins of terminals, for which people approve in a browser.

    `url` is the address of the controller's pages. `settings` and `provider` are None for a
    controller without an identity provider, which refuses all logins.
    """

    def __init__(
        self,
        gate: AccessGate,
        url: str,
        settings: OidcSettings | None = None,
        provider: LoginProvider | None = None,
    ) -> None:
        self._gate = gate
        self._people = gate.authentication.people
        self._url = url
        self._settings = settings
        self._provider = provider
        self._pending = PendingLogins(gate.clock)

    @property
    def has_provider(self) -> bool:
        """Whether people can log in through an identity provider."""
        return self._settings is not None

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach the pages by HTTPS."""
        return self._url.startswith("https://")

    def begin(self, request: LoginRequest, address: str) -> BegunLogin:
        """Begin a login of a terminal that connects from `address`.

        Raises:
            NotFound: this controller has no identity provider.
            Throttled: too many logins are pending.
        """
        self._require_provider()
        host = _NO_HOST.sub("-", request.host)[:_LONGEST_HOST]
        device_code, login = self._pending.begin(LoginTerminal(host, address))
        return BegunLogin(
            device_code,
            login.user_code,
            f"{self._url}{LOGIN_PATH}?code={login.user_code}",
            LOGIN_SECONDS,
            login.interval_seconds,
        )

    def open(self, user_code: str, address: str) -> LoginPage:
        """Begin a browser's visit for a user code.

        Raises:
            NotFound: the code is unknown, or this controller has no identity provider.
            Conflict, Throttled: as `PendingLogins.visit`.
            Unavailable: the provider does not answer.
        """
        _, provider = self._require_provider()
        cookie, visit = self._pending.visit(user_code, address)
        assert visit.state is not None, "the visit has just begun"
        return LoginPage(
            provider.authorization_url(visit.state, visit.nonce, visit.verifier), cookie
        )

    def open_browser(self, address: str) -> LoginPage:
        """Begin the login of a browser itself.

        Raises:
            NotFound: this controller has no identity provider.
            Throttled: too many logins are pending.
            Unavailable: the provider does not answer.
        """
        self._require_provider()
        terminal = LoginTerminal("a browser", address)
        _, login = self._pending.begin(terminal, is_browser=True)
        return self.open(login.user_code, address)

    def identify(self, cookie: str | None, answer: Mapping[str, str]) -> LoginQuestion:
        """Return the question for the person whom the provider's answer to a visit names.

        Raises:
            NotFound: this controller has no identity provider.
            NotAllowed: the answer is for another browser, or proves no name.
            Forbidden: the provider refused, or the person may not log in here.
            Conflict: the login is decided.
            Unavailable: the provider does not answer.
        """
        settings, provider = self._require_provider()
        visit = self._pending.answered(cookie, answer.get("state", ""))
        if answer.get("iss", settings.issuer) != settings.issuer:
            raise NotAllowed("the answer is not one of this controller's identity provider")
        if "error" in answer or "code" not in answer:
            raise Forbidden(_provider_error(answer))
        name = _name(provider.name(answer["code"], visit.nonce, visit.verifier), settings.claim)
        try:
            person = self._people.standing(name, self._new_role(name))
        except Forbidden as error:
            _log.warning("login from %s refused: %s", visit.login.terminal.address, error)
            raise
        visit.person = person.name
        return _question(person, visit)

    def decide(self, cookie: str | None, form_token: str, is_approved: bool) -> LoginTerminal:
        """Approve or deny the login of a browser's visit; return the terminal.

        Raises:
            NotAllowed, Conflict: as `PendingLogins.decide`.
        """
        return self._pending.decide(cookie, form_token, is_approved).login.terminal

    def session(self, cookie: str | None, form_token: str) -> NewToken:
        """Return the token of a session, for a browser whose person the provider named.

        Raises:
            NotAllowed, Conflict: as `PendingLogins.decide`.
            Forbidden: the person has been removed since.
        """
        login = self._pending.decide(cookie, form_token, True).login
        self._pending.end(login)
        return self._new_token(login.person or "", login.terminal, new_session_name())

    def token(self, device_code: str) -> LoginReply:
        """Return the state of a login, with a new token once if a person approved it.

        Raises:
            Forbidden: the person has been removed since.
            StoreError: the token can't be stored; the terminal may ask again.
        """
        status, login = self._pending.ask(device_code)
        if login is None:
            return LoginReply(status, 0.0)
        token = self._granted(login) if status is LoginStatus.GRANTED else None
        return LoginReply(status, login.interval_seconds, token)

    def _granted(self, login: PendingLogin) -> NewToken:
        """Return a new token of the person who approved a login, and record it.

        Raises:
            Forbidden: the person has been removed since.
            StoreError: the store does not take it; the login stays granted.
        """
        try:
            name = _token_name(login.terminal.host)
            return self._new_token(login.person or "", login.terminal, name)
        except StoreError:
            self._pending.put_back(login)
            raise

    def _new_token(self, name: str, terminal: LoginTerminal, token_name: str) -> NewToken:
        settings, _ = self._require_provider()
        is_new = not self._people.is_known(name)
        valid_seconds = settings.valid_seconds
        if token_name.startswith(BROWSER_TOKEN):
            valid_seconds = min(valid_seconds, SESSION_SECONDS)
        person, token = self._people.log_in(name, self._new_role(name), token_name, valid_seconds)
        identity = Identity(person.name, person.role, person.team, token.name)
        if is_new:
            change = Recorded(name, after=f"{person.role}, by a login")
            self._gate.record(identity, AccessAction.ADD_PERSON, change)
        after = f"login from {terminal.host or 'a host without a name'} at {terminal.address}"
        change = Recorded(f"{name}/{token.name}", after=after)
        self._gate.record(identity, AccessAction.CREATE_TOKEN, change)
        return token

    def _require_provider(self) -> tuple[OidcSettings, LoginProvider]:
        if self._settings is None or self._provider is None:
            raise NotFound(
                "this controller has no identity provider for castor login: ask its admin for a "
                "token (castor invite)"
            )
        return self._settings, self._provider

    def _new_role(self, name: str) -> Role | None:
        """Return the role with which a person may be added at a login; None: not at all."""
        settings, _ = self._require_provider()
        _, at, domain = name.partition("@")
        return settings.new_role if at and domain in settings.domains else None


def _name(value: str, claim: str) -> str:
    """Return the name of a person that a claim's value means.

    An e-mail address means the same in any case, other values may not. Letters beyond ASCII are
    refused before the case is changed, since some become ASCII by it.

    Raises:
        Forbidden: no person can have this name.
    """
    name = value.lower() if claim == EMAIL and value.isascii() else value
    try:
        require_person_name(name)
    except SpecError:
        raise Forbidden(
            f"the provider's {claim} is {quoted(value)}, which can't be the name of a person "
            "here: 1 to 80 of a-z, 0-9 and .@_-, and not reserved"
        ) from None
    return name


def _question(person: Person, visit: LoginVisit) -> LoginQuestion:
    login = visit.login
    return LoginQuestion(
        person, login.user_code, login.terminal, visit.form_token, login.is_browser
    )


def _provider_error(answer: Mapping[str, str]) -> str:
    """Return the message for an answer of the provider that is an error."""
    error = answer.get("error", "no code")
    if error == _DENIED_AT_PROVIDER:
        return "the login was cancelled at the identity provider"
    return f"the identity provider refused the login: {quoted(error)}"


def _token_name(host: str) -> str:
    """Return a new name for a token of a terminal, such as login-laptop-1a2b3c."""
    words = re.sub(r"[^a-z0-9]+", "-", host.lower())[:_HOST_IN_NAME].strip("-")
    return LOGIN_TOKEN + "-".join(filter(None, (words, secrets.token_hex(_RANDOM_BYTES))))


def open_logins(
    settings: OidcSettings | None,
    url: str,
    authentication: Authentication,
    store: Store,
    clock: Clock,
) -> Logins:
    """Return the logins of a controller at `url`; None: without an identity provider.

    The provider is not asked yet.

    Raises:
        SpecError: the extra of identity providers is not installed.
    """
    gate = AccessGate(authentication, store, clock)
    if settings is None:
        return Logins(gate, url)
    redirect_uri = f"{url}{CALLBACK_PATH}"
    provider = _provider_class()(settings, redirect_uri, clock)
    _log.info("people log in through %s, with redirect URI %s", settings.issuer, redirect_uri)
    return Logins(gate, url, settings, provider)


def require_provider_client(settings: OidcSettings | None) -> None:
    """Check that the extra of identity providers is installed, if there is a provider.

    Raises:
        SpecError: it is not.
    """
    if settings is not None:
        _provider_class()


def _provider_class() -> type[OidcProvider]:
    """Return the class of identity providers, which a controller without one does not import.

    Raises:
        SpecError: its extra is not installed.
    """
    with from_extras("server,oidc", "--oidc-issuer"):
        from autoscaler.service.access.oidc import OidcProvider

    return OidcProvider
