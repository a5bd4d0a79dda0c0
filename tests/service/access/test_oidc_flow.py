"""Login of a terminal from end to end, through the provider of oidc-provider-mock by real HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import httpx
import oidc_provider_mock
import pytest

from autoscaler.clock import SystemClock
from autoscaler.service.access.logins import CALLBACK_PATH
from autoscaler.service.access.oidc import OidcProvider
from autoscaler.service.access.oidc_settings import OidcSettings
from autoscaler.service.access.pending_logins import INTERVAL_SECONDS
from autoscaler.wire.access_messages import LoginStatus
from tests.service.conftest import Api
from tests.service.identity import SETTINGS, Browser, begin

# Of the provider, which uses what its library has replaced.
pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")

ADA = "ada@example.org"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """Run the provider, with people whose addresses are verified and not."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    people = [
        oidc_provider_mock.User(sub=sub, claims={"email": email, "email_verified": is_verified})
        for sub, email, is_verified in (
            ("ada", ADA, True),
            ("eve", "eve@example.org", False),
            ("bob", "bob@elsewhere.example", True),
        )
    ]
    with oidc_provider_mock.run_server_in_thread(user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def settings(api: Api, issuer: str) -> OidcSettings:
    """Let people log in at the API through the provider."""
    registration = httpx.post(
        f"{issuer}/oauth2/clients", json={"redirect_uris": [f"{api.url}{CALLBACK_PATH}"]}
    ).json()
    settings = replace(
        SETTINGS,
        issuer=issuer,
        client_id=registration["client_id"],
        client_secret=registration["client_secret"],
    )
    use(api, settings)
    return settings


def use(api: Api, settings: OidcSettings) -> None:
    # The provider has the time of this machine.
    provider = OidcProvider(settings, f"{api.url}{CALLBACK_PATH}", SystemClock())
    api.log_in_through(settings, provider)


def at_provider(redirect: httpx.Response, form: dict[str, str]) -> str:
    """Fill in the form of the provider's page, and return where it sends the browser."""
    page = redirect.headers["location"]
    assert httpx.get(page).status_code == 200
    return httpx.post(page, data=form).headers["location"]


def test_a_terminal_logs_in_through_the_provider(api: Api, settings: OidcSettings) -> None:
    terminal, begun = begin(api.url)
    browser = Browser(api.url)
    callback = at_provider(browser.open(begun), {"sub": "ada"})
    assert callback.startswith(f"{api.url}{CALLBACK_PATH}?code=")
    question = browser.http.get(callback)
    assert question.status_code == 200 and f"{ADA} (viewer)" in question.text
    assert terminal.token(begun.device_code).status is LoginStatus.PENDING
    assert browser.decide(question).status_code == 200
    api.world.clock.advance(INTERVAL_SECONDS)
    token = terminal.token(begun.device_code).token
    assert token is not None and token.person == ADA
    assert api.stranger(token.token).jobs() == ()
    assert browser.http.get(callback).status_code == 401, "its state was used"


@pytest.mark.parametrize(
    ("form", "status", "text"),
    [
        ({"sub": "eve"}, 401, "has not verified the address &quot;eve@example.org&quot;"),
        ({"sub": "bob"}, 403, "bob@elsewhere.example is not known here"),
    ],
)
def test_others_are_refused(
    api: Api, settings: OidcSettings, form: dict[str, str], status: int, text: str
) -> None:
    terminal, begun = begin(api.url)
    browser = Browser(api.url)
    page = browser.http.get(at_provider(browser.open(begun), form))
    assert page.status_code == status and text in page.text
    assert terminal.token(begun.device_code).status is LoginStatus.PENDING
    assert len(api.client.people()) == 1


def test_a_wrong_secret_is_the_operator_s_to_repair(api: Api, settings: OidcSettings) -> None:
    use(api, replace(settings, client_secret="wrong"))
    _, begun = begin(api.url)
    browser = Browser(api.url)
    page = browser.http.get(at_provider(browser.open(begun), {"sub": "ada"}))
    assert page.status_code == 401 and "check --oidc-client-id and its secret" in page.text
    assert "wrong" not in page.text


def test_a_code_of_another_login_is_refused(api: Api, settings: OidcSettings) -> None:
    """Check that a code which is injected into another login fails there, by its nonce."""
    stolen = at_provider(Browser(api.url).open(begin(api.url)[1]), {"sub": "ada"})
    code = httpx.URL(stolen).params["code"]
    _, begun = begin(api.url)
    browser = Browser(api.url)
    page = browser.answer(browser.open(begun), code=code)
    assert page.status_code == 401 and "it is of another login" in page.text
