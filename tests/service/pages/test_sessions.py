"""Sessions of browsers: beginning, end, limits, and what another site can't do with one."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import httpx
import pytest

from autoscaler.domain.access import BROWSER_TOKEN, Role
from autoscaler.domain.errors import Forbidden, NotAllowed
from autoscaler.service.access.browser_sessions import LINK_SECONDS, SESSION_SECONDS
from autoscaler.service.access.wrong_tries import MOST_WRONG, WINDOW_SECONDS
from autoscaler.wire.access_messages import InvitationRequest, TokenRequest
from tests.service.conftest import TOKEN, Api
from tests.service.identity import ISSUER, Browser
from tests.service.pages.browser import PageVisitor

SESSION_COOKIE = "castor-session"


def sessions_of(api: Api, person: str = "owner") -> list[str]:
    """Return the names of the usable sessions of a person."""
    now_seconds = api.world.clock.now()
    tokens = api.client.tokens(person)
    return [
        token.name
        for token in tokens
        if token.name.startswith(BROWSER_TOKEN) and token.is_usable(now_seconds)
    ]


def test_a_person_signs_in_with_a_token_and_out(api: Api) -> None:
    visitor = PageVisitor(api, None)
    reply = visitor.get("/?q=a")
    assert (reply.status_code, reply.headers["location"]) == (303, "/sign-in?next=/%3Fq%3Da")
    reply = visitor.http.post("/sign-in", data={"token": TOKEN, "next": "/?q=a"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/?q=a")
    assert visitor.get("/").status_code == 200
    (name,) = sessions_of(api)
    assert re.fullmatch("browser-[0-9a-f]{8}", name)
    reply = visitor.send("/sign-out")
    assert (reply.status_code, reply.headers["location"]) == (303, "/sign-in")
    assert sessions_of(api) == [] and visitor.get("/").status_code == 303
    assert [row.action for row in api.client.audit()] == ["revoke token", "create token"]


def test_the_cookie_is_kept_from_scripts_and_is_not_the_token_that_was_pasted(api: Api) -> None:
    reply = httpx.post(f"{api.url}/sign-in", data={"token": TOKEN})
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"{SESSION_COOKIE}=") and TOKEN not in cookie
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie


def test_over_https_the_cookie_is_of_this_host_alone_and_no_other_counts(api: Api) -> None:
    api.pages_at("https://castor.example.org")
    reply = httpx.post(f"{api.url}/sign-in", data={"token": TOKEN})
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"__Host-{SESSION_COOKIE}=")
    assert "Secure" in cookie and "Path=/" in cookie and "Domain" not in cookie


@pytest.mark.parametrize("token", ["", "wrong", "é", "x" * 5_000])
def test_a_wrong_token_is_refused_on_the_page(api: Api, token: str) -> None:
    reply = httpx.post(f"{api.url}/sign-in", data={"token": token})
    assert reply.status_code == 401 and 'role="alert"' in reply.text
    assert "set-cookie" not in reply.headers


def test_tokens_can_not_be_guessed_by_force(api: Api) -> None:
    for _ in range(MOST_WRONG):
        httpx.post(f"{api.url}/sign-in", data={"token": "wrong"})
    reply = httpx.post(f"{api.url}/sign-in", data={"token": TOKEN})
    assert reply.status_code == 429 and int(reply.headers["Retry-After"]) <= WINDOW_SECONDS
    api.world.clock.advance(WINDOW_SECONDS)
    assert httpx.post(f"{api.url}/sign-in", data={"token": TOKEN}).status_code == 303


def test_a_session_ends_after_twelve_hours_and_with_the_token_that_began_it(api: Api) -> None:
    day = PageVisitor(api)
    short = api.client.invite("ada", InvitationRequest(Role.VIEWER, None, 60.0)).token
    minute = PageVisitor(api, short)
    api.world.clock.advance(60.0)
    assert minute.get("/").status_code == 303 and day.get("/").status_code == 200
    api.world.clock.advance(SESSION_SECONDS)
    assert day.get("/").status_code == 303


def test_a_session_permits_no_more_than_the_token_that_began_it(api: Api) -> None:
    limited = api.client.create_token(TokenRequest("small", role=Role.VIEWER)).token
    visitor = PageVisitor(api, limited)
    tokens = {token.name: token for token in api.client.tokens()}
    (name,) = sessions_of(api)
    assert tokens[name].role is Role.VIEWER
    assert visitor.get("/v1/audit").status_code == 403


def test_a_revoked_session_ends(api: Api) -> None:
    visitor = PageVisitor(api)
    api.client.revoke_token(sessions_of(api)[0])
    assert visitor.get("/").status_code == 303


def test_a_service_token_has_no_pages(api: Api) -> None:
    service = api.client.create_token(TokenRequest("ci", is_service=True)).token
    reply = httpx.post(f"{api.url}/sign-in", data={"token": service})
    assert reply.status_code == 403 and "has no pages" in reply.text
    with pytest.raises(Forbidden):
        api.stranger(service).browser_link()


def test_a_session_reads_the_api_and_changes_nothing_there(api: Api) -> None:
    visitor = PageVisitor(api)
    assert visitor.get("/v1/jobs").json() == []
    for method, path in (("POST", "/v1/freeze"), ("POST", "/v1/jobs"), ("DELETE", "/v1/people/a")):
        assert visitor.http.request(method, path).status_code == 401
    assert visitor.get("/v1/node/assignment").status_code == 401
    assert api.client.fleet().hands_off is None


def test_a_form_of_another_site_changes_nothing(api: Api) -> None:
    visitor, other = PageVisitor(api), PageVisitor(api)
    for token in ("", "x", other.form_token(), "é"):
        reply = visitor.http.post("/sign-out", data={"form_token": token})
        assert reply.status_code == 401 and "load the page again" in reply.text
    assert visitor.get("/").status_code == 200


def test_a_form_without_a_session_is_refused_before_its_body_is_read(api: Api) -> None:
    reply = httpx.post(f"{api.url}/sign-out", content=b"x" * 100, headers={"Accept": "text/html"})
    assert reply.status_code == 401 and "not signed in" in reply.text


def test_a_link_signs_one_browser_in_once(api: Api) -> None:
    link = api.client.browser_link()
    path = link.url.removeprefix(api.url)
    browser = httpx.Client(base_url=api.url)
    reply = browser.get(path)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert browser.get("/").status_code == 200
    again = httpx.get(f"{api.url}{path}")
    assert again.status_code == 401 and "set-cookie" not in again.headers
    late = api.client.browser_link().url
    api.world.clock.advance(LINK_SECONDS)
    assert httpx.get(api.url + urlsplit(late).path, params=urlsplit(late).query).is_error


def test_a_person_signs_in_through_the_identity_provider(api: Api) -> None:
    browser = Browser(api.url)
    redirect = browser.http.get("/sign-in/provider")
    assert redirect.headers["location"].startswith(f"{ISSUER}/authorize?state=")
    reply = browser.answer(redirect)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert "ada@example.org" in browser.http.get("/").text
    assert len(sessions_of(api, "ada@example.org")) == 1
    assert browser.answer(redirect).status_code == 401, "an answer counts once"
    stranger = Browser(api.url)
    assert stranger.answer(browser.http.get("/sign-in/provider")).status_code == 401


def test_without_an_identity_provider_the_page_offers_none(api: Api) -> None:
    assert "identity provider" in httpx.get(f"{api.url}/sign-in").text
    api.log_in_through(None)
    assert "identity provider" not in httpx.get(f"{api.url}/sign-in").text
    assert httpx.get(f"{api.url}/sign-in/provider").status_code == 404


@pytest.mark.parametrize(
    "elsewhere",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "/a\nb", "", "x"],
)
def test_no_parameter_leads_to_another_site(api: Api, elsewhere: str) -> None:
    reply = httpx.post(f"{api.url}/sign-in", data={"token": TOKEN, "next": elsewhere})
    assert reply.headers["location"] == "/"


def test_a_session_that_was_revoked_is_told_to_clients_of_the_api(api: Api) -> None:
    visitor = PageVisitor(api)
    token = visitor.http.cookies[SESSION_COOKIE]
    api.client.revoke_token(sessions_of(api)[0])
    with pytest.raises(NotAllowed):
        api.stranger(token).jobs()


def test_the_theme_is_kept_in_a_cookie(api: Api) -> None:
    visitor = PageVisitor(api)
    assert "data-theme" not in visitor.get("/").text
    reply = visitor.send("/theme", theme="dark", next="/")
    assert reply.status_code == 303
    assert 'data-theme="dark"' in visitor.get("/").text
    visitor.send("/theme", theme='"><script>', next="/")
    assert 'data-theme="dark"' in visitor.get("/").text
