"""Logins through an identity provider, with the API and a browser: who may, and what is left."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx
import pytest

from autoscaler.domain.access import OWNER, Role
from autoscaler.domain.errors import (
    Conflict,
    Forbidden,
    NotAllowed,
    NotFound,
    SpecError,
    StoreError,
    Unavailable,
)
from autoscaler.service.access.pending_logins import (
    INTERVAL_SECONDS,
    MOST_OF_ADDRESS,
)
from autoscaler.service.access.people import PeopleAccess
from autoscaler.service.access.wrong_tries import MOST_WRONG
from autoscaler.wire.access_messages import (
    InvitationRequest,
    LoginReply,
    LoginStatus,
    NewPerson,
    NewToken,
    PersonChange,
)
from autoscaler.wire.login_client import LoginClient
from tests.service.conftest import Api
from tests.service.identity import ISSUER, SETTINGS, Browser, begin, form_token

ADA = "ada@example.org"


def logged_in(api: Api, host: str = "laptop") -> NewToken:
    """Return the token of a terminal, for whose login the provider's person approves."""
    terminal, begun = begin(api.url, host)
    approved = Browser(api.url).approve(begun)
    assert approved.status_code == 200, approved.text
    reply = terminal.token(begun.device_code)
    assert reply.status is LoginStatus.GRANTED and reply.token is not None
    return reply.token


def refusal(api: Api) -> str:
    """Return why the provider's person may not log in; nothing is written."""
    terminal, begun = begin(api.url)
    before = api.client.people(), api.client.audit()
    page = Browser(api.url).question(begun)
    assert page.status_code == 403, page.text
    assert (api.client.people(), api.client.audit()) == before
    assert terminal.token(begun.device_code).status is LoginStatus.PENDING
    return page.text


def test_a_person_who_approves_gets_a_usual_token_for_twelve_hours(api: Api) -> None:
    api.client.add_person(NewPerson(ADA, Role.OPERATOR, "nlp"))
    terminal, begun = begin(api.url)
    assert begun.url == f"{api.url}/login?code={begun.user_code}"
    browser = Browser(api.url)
    redirect = browser.open(begun)
    assert redirect.status_code == 303
    assert redirect.headers["location"].startswith(f"{ISSUER}/authorize?state=")
    assert terminal.token(begun.device_code) == LoginReply(LoginStatus.PENDING, INTERVAL_SECONDS)
    question = browser.answer(redirect)
    for shown in (begun.user_code, "laptop", "127.0.0.1", f"{ADA} (operator)"):
        assert shown in question.text
    assert "laptop is logged in" in browser.decide(question).text
    api.world.clock.advance(INTERVAL_SECONDS)
    token = terminal.token(begun.device_code).token
    assert token is not None and re.fullmatch("login-laptop-[0-9a-f]{6}", token.name)
    assert (token.person, token.role) == (ADA, None)
    assert token.expires_seconds == api.world.clock.now() + 12 * 3600
    ada = api.stranger(token.token)
    ada.freeze()
    api.world.clock.advance(12 * 3600.0)
    with pytest.raises(NotAllowed, match=r"expired at .*: run castor login again"):
        ada.jobs()


def test_a_login_adds_one_row_to_the_audit_log_and_a_new_person_another(api: Api) -> None:
    token = logged_in(api, "Big Host.local")
    row, added = api.client.audit()
    assert (row.person, row.token, row.role) == (ADA, token.name, "viewer")
    assert (row.action, row.subject) == ("create token", f"{ADA}/{token.name}")
    assert row.after == "login from Big-Host.local at 127.0.0.1"
    assert (added.action, added.subject, added.after) == ("add person", ADA, "viewer, by a login")
    assert token.name.startswith("login-big-host-local-")
    logged_in(api)
    assert [row.action for row in api.client.audit()] == ["create token"] * 2 + ["add person"]


def test_an_unknown_person_is_refused_with_the_way_out(api: Api) -> None:
    api.provider.value = "eve@elsewhere.example"
    assert "eve@elsewhere.example is not known here: ask an admin" in refusal(api)
    api.client.add_person(NewPerson("eve@elsewhere.example"))
    assert logged_in(api).person == "eve@elsewhere.example"


@pytest.mark.parametrize(
    "name",
    [
        "ada@sub.example.org",
        "ada@notexample.org",
        "ada@example.org.evil.example",
        "example.org",
        "eve@evil.example@example.org",
    ],
)
def test_only_people_of_the_very_domains_are_added(api: Api, name: str) -> None:
    api.provider.value = name
    assert "is not known here" in refusal(api)


def test_nobody_is_added_without_a_role_for_new_people(api: Api) -> None:
    api.log_in_through(replace(SETTINGS, new_role=None))
    assert f"{ADA} is not known here" in refusal(api)


@pytest.mark.parametrize("name", [OWNER, "OWNER", "me", "controller"])
def test_no_provider_names_the_owner_of_the_controller(api: Api, name: str) -> None:
    api.provider.value = name
    assert "and not reserved" in refusal(api)


@pytest.mark.parametrize(
    "name", ["", "\u212aarl@example.org", "a b@example.org", "<script>", "x" * 81, "a\0b", "../x"]
)
def test_a_value_that_is_no_name_is_refused(api: Api, name: str) -> None:
    api.client.add_person(NewPerson("karl@example.org", Role.ADMIN))
    api.provider.value = name
    text = refusal(api)
    assert "the name of a person here" in text and "<script>" not in text


def test_the_case_of_a_name_does_not_matter(api: Api) -> None:
    api.provider.value = "Ada@Example.ORG"
    assert logged_in(api).person == ADA


def test_the_case_of_another_claim_matters(api: Api) -> None:
    api.log_in_through(replace(SETTINGS, claim="sub", domains=frozenset(), new_role=None))
    api.client.add_person(NewPerson("a1b2"))
    api.provider.value = "A1b2"
    assert "the provider&#x27;s sub is &quot;A1b2&quot;, which can&#x27;t be" in refusal(api)
    api.provider.value = "a1b2"
    assert logged_in(api).person == "a1b2"


def test_a_person_who_was_removed_stays_out_until_an_admin_adds_them(api: Api) -> None:
    token = logged_in(api)
    api.client.remove_person(ADA)
    with pytest.raises(NotAllowed):
        api.stranger(token.token).jobs()
    assert f"{ADA} was removed here by an admin" in refusal(api)
    api.client.add_person(NewPerson(ADA))
    assert logged_in(api).person == ADA


def test_a_person_who_was_removed_before_the_first_login_stays_out(api: Api) -> None:
    api.client.add_person(NewPerson(ADA))
    api.client.remove_person(ADA)
    assert "was removed here" in refusal(api)


def test_a_person_who_is_removed_after_the_approval_gets_no_token(api: Api) -> None:
    api.client.add_person(NewPerson(ADA))
    terminal, begun = begin(api.url)
    Browser(api.url).approve(begun)
    api.client.remove_person(ADA)
    with pytest.raises(Forbidden, match="was removed here by an admin"):
        terminal.token(begun.device_code)
    assert [person.name for person in api.client.people()] == [OWNER]


def test_a_login_follows_the_role_of_its_person(api: Api) -> None:
    ada = api.stranger(logged_in(api).token)
    with pytest.raises(Forbidden):
        ada.freeze()
    api.client.change_person(ADA, PersonChange(Role.OPERATOR))
    ada.freeze()
    assert logged_in(api).person == ADA
    people = {person.name: person for person in api.client.people()}
    assert (people[ADA].role, people[ADA].tokens) == (Role.OPERATOR, 2)


def test_a_person_added_without_a_token_is_new_and_has_a_plain_name(api: Api) -> None:
    assert api.client.add_person(NewPerson(ADA, team="nlp")).team == "nlp"
    assert [(view.name, view.tokens) for view in api.client.people()] == [(ADA, 0), (OWNER, 1)]
    with pytest.raises(Conflict, match=f"{ADA} is known here: castor people set"):
        api.client.add_person(NewPerson(ADA))
    for name in (OWNER, "A B"):
        with pytest.raises(SpecError):
            api.client.add_person(NewPerson(name))
    with pytest.raises(SpecError, match="not a valid team"):
        api.client.add_person(NewPerson("bob", team="none"))


def test_a_login_that_is_denied_gives_no_token(api: Api) -> None:
    terminal, begun = begin(api.url)
    browser = Browser(api.url)
    page = browser.decide(browser.question(begun), "deny")
    assert "laptop is not logged in" in page.text
    assert terminal.token(begun.device_code).status is LoginStatus.DENIED
    assert [person.name for person in api.client.people()] == [OWNER]


def test_a_login_that_is_cancelled_at_the_provider_stays_pending(api: Api) -> None:
    terminal, begun = begin(api.url)
    browser = Browser(api.url)
    page = browser.answer(browser.open(begun), error="access_denied")
    assert page.status_code == 403 and "was cancelled at the identity provider" in page.text
    page = browser.answer(browser.open(begun), error="<b>odd</b>")
    assert page.status_code == 403 and "<b>" not in page.text
    assert terminal.token(begun.device_code).status is LoginStatus.PENDING
    browser.approve(begun)
    api.world.clock.advance(INTERVAL_SECONDS)
    assert terminal.token(begun.device_code).token is not None


def test_a_device_code_gives_one_token(api: Api) -> None:
    terminal, begun = begin(api.url)
    Browser(api.url).approve(begun)
    assert terminal.token(begun.device_code).token is not None
    api.world.clock.advance(INTERVAL_SECONDS)
    assert terminal.token(begun.device_code) == LoginReply(LoginStatus.EXPIRED, 0.0)
    assert len(api.client.tokens(ADA)) == 1


def test_an_answer_of_the_provider_counts_once_and_in_its_browser_only(api: Api) -> None:
    _, begun = begin(api.url)
    browser = Browser(api.url)
    redirect = browser.open(begun)
    stranger = Browser(api.url)
    assert stranger.answer(redirect).status_code == 401
    stranger.open(begun)
    assert stranger.answer(redirect).status_code == 401, "the cookie of another visit"
    wrong = browser.answer(redirect, state="wrong")
    assert wrong.status_code == 401
    assert browser.answer(redirect, iss="https://other.example").status_code == 401
    redirect = browser.open(begun)
    question = browser.answer(redirect, iss=ISSUER)
    assert question.status_code == 200
    again = browser.answer(redirect)
    assert again.status_code == 401 and "not for this page" in again.text
    assert api.provider.codes == ["a-code"], "no other answer reached the provider"


def test_a_form_of_another_site_approves_nothing(api: Api) -> None:
    terminal, begun = begin(api.url)
    browser = Browser(api.url)
    question = browser.question(begun)
    for form in ({}, {"decision": "approve"}, {"decision": "approve", "form_token": "guess"}):
        assert browser.http.post("/login", data=form).status_code == 401
    assert Browser(api.url).decide(question).status_code == 401, "a browser without the cookie"
    for body in (b"\xff", b"a=1&" * 1000, b"["):
        assert browser.http.post("/login", content=body).status_code == 401
    assert browser.http.post("/login", content=b"x" * 70_000).status_code == 413
    assert terminal.token(begun.device_code).status is LoginStatus.PENDING
    assert browser.decide(question).status_code == 200


def test_a_browser_binds_a_login_by_a_cookie_that_scripts_and_other_sites_lack(api: Api) -> None:
    _, begun = begin(api.url)
    cookie = Browser(api.url).open(begun).headers["set-cookie"]
    assert cookie.startswith("castor-login=")
    for attribute in ("HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax"):
        assert attribute in cookie
    assert "Secure" not in cookie
    address, api.url = api.url, "https://castor.example"
    api.log_in_through(SETTINGS)
    api.url = address
    _, begun = begin(api.url)
    assert begun.url.startswith("https://castor.example/login?code=")
    cookie = Browser(api.url).open(begun).headers["set-cookie"]
    assert cookie.startswith("__Host-castor-login=") and "Secure" in cookie


def test_pages_load_and_run_nothing_and_are_kept_and_framed_nowhere(api: Api) -> None:
    _, begun = begin(api.url)
    browser = Browser(api.url)
    redirect = browser.open(begun)
    question = browser.answer(redirect)
    unknown = browser.http.get("/login?code=BBBB-BBBB")
    assert unknown.status_code == 404
    for page in (redirect, question, unknown, browser.http.get("/login")):
        assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "<script" not in page.text and "style" not in page.text


HOSTILE = "<script>alert(1)</script>\"'\x1b[2J\r\n"


def test_texts_of_strangers_are_escaped_on_pages_and_in_the_audit_log(api: Api) -> None:
    terminal, begun = begin(api.url, HOSTILE)
    browser = Browser(api.url)
    question = browser.question(begun)
    assert "<dd>-script-alert-1-script-2J-, which connects from 127.0.0.1</dd>" in question.text
    approved = browser.decide(question)
    for page in (question, approved, browser.http.get("/login", params={"code": HOSTILE})):
        assert "<script>" not in page.text and "\x1b" not in page.text
    token = terminal.token(begun.device_code).token
    assert token is not None and token.name.startswith("login-script-alert-1-scri-")
    assert api.client.audit()[0].after == "login from -script-alert-1-script-2J- at 127.0.0.1"


@pytest.mark.parametrize("parameter", ["next", "redirect_uri", "url", "return_to"])
def test_no_parameter_sends_a_browser_elsewhere(api: Api, parameter: str) -> None:
    _, begun = begin(api.url)
    browser = Browser(api.url)
    elsewhere = {parameter: "https://evil.example/"}
    redirect = browser.http.get("/login", params={"code": begun.user_code, **elsewhere})
    assert redirect.headers["location"].startswith(f"{ISSUER}/authorize?")
    assert "evil" not in redirect.headers["location"]
    question = browser.answer(redirect, **elsewhere)
    assert "location" not in question.headers and "evil" not in question.text
    form = {"form_token": form_token(question), "decision": "approve", **elsewhere}
    page = browser.http.post("/login", data=form)
    assert page.status_code == 200 and "location" not in page.headers
    assert begun.url.startswith(api.url), "whatever the Host header says"
    spoofed = httpx.post(
        f"{api.url}/v1/logins", json={"host": "x"}, headers={"Host": "evil.example"}
    )
    assert spoofed.json()["url"].startswith(api.url)


def test_codes_can_not_be_guessed_through_the_pages(api: Api) -> None:
    browser = Browser(api.url)
    for _ in range(MOST_WRONG):
        assert browser.http.get("/login?code=BBBB-BBBB").status_code == 404
    refused = browser.http.get("/login?code=BBBB-BBBB")
    assert refused.status_code == 429 and refused.headers["retry-after"] == "600"
    api.world.clock.advance(600.0)
    assert browser.http.get("/login?code=BBBB-BBBB").status_code == 404


def test_an_address_has_few_logins_pending(api: Api) -> None:
    for _ in range(MOST_OF_ADDRESS):
        begin(api.url)
    with pytest.raises(Unavailable, match="10 logins are pending"):
        begin(api.url)
    refused = httpx.post(f"{api.url}/v1/logins", json={})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "600")


def test_a_provider_that_is_away_is_named_and_the_login_goes_on_later(api: Api) -> None:
    terminal, begun = begin(api.url)
    browser = Browser(api.url)
    api.provider.trouble = Unavailable(f"the identity provider {ISSUER} can't be used now")
    page = browser.open(begun)
    assert page.status_code == 503 and f"provider {ISSUER} can&#x27;t be used" in page.text
    api.provider.trouble = None
    redirect = browser.open(begun)
    api.provider.trouble = Unavailable("it went away")
    assert browser.answer(redirect).status_code == 503
    api.provider.trouble = None
    assert api.client.audit() == () and len(api.client.people()) == 1
    assert browser.approve(begun).status_code == 200
    assert terminal.token(begun.device_code).token is not None


def test_a_store_that_is_away_costs_no_login(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, begun = begin(api.url)
    Browser(api.url).approve(begun)
    with monkeypatch.context() as away:
        away.setattr(PeopleAccess, "log_in", failing_store)
        with pytest.raises(Unavailable, match="the disk is full"):
            terminal.token(begun.device_code)
    assert len(api.client.people()) == 1
    api.world.clock.advance(INTERVAL_SECONDS)
    assert terminal.token(begun.device_code).token is not None
    assert len(api.client.tokens(ADA)) == 1


def failing_store(*_: object) -> None:
    raise StoreError("the disk is full")


def test_a_controller_without_a_provider_says_how_to_get_a_token(api: Api) -> None:
    api.log_in_through(None)
    with pytest.raises(NotFound, match=r"no identity provider .*\(castor invite\)"):
        begin(api.url)
    assert LoginClient(api.url).token("x").status is LoginStatus.EXPIRED
    page = httpx.get(f"{api.url}/login?code=BBBB-BBBB")
    assert page.status_code == 404 and "no identity provider" in page.text


def test_an_invited_person_may_log_in_too(api: Api) -> None:
    api.client.invite(ADA, InvitationRequest(Role.SUBMITTER))
    assert logged_in(api).person == ADA
    assert {token.name.partition("-")[0] for token in api.client.tokens(ADA)} == {
        "invitation",
        "login",
    }


def test_a_code_of_a_controller_before_is_unknown_to_the_next(api: Api) -> None:
    terminal, begun = begin(api.url)
    api.log_in_through(SETTINGS)  # as after a change of the leader: pending logins are in memory
    assert terminal.token(begun.device_code).status is LoginStatus.EXPIRED
    assert Browser(api.url).open(begun).status_code == 404
