"""Pending logins: their codes, limits and ends, on a virtual clock."""

from __future__ import annotations

import re

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import Conflict, NotAllowed, NotFound, Throttled
from autoscaler.service.access.pending_logins import (
    INTERVAL_SECONDS,
    LOGIN_SECONDS,
    MOST_OF_ADDRESS,
    MOST_PENDING,
    MOST_VISITS,
    LoginTerminal,
    LoginVisit,
    PendingLogin,
    PendingLogins,
    normal_code,
)
from autoscaler.service.access.wrong_tries import MOST_WRONG
from autoscaler.wire.access_messages import LoginStatus

HERE = "192.0.2.1"
LAPTOP = LoginTerminal("laptop", HERE)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pending(clock: VirtualClock) -> PendingLogins:
    return PendingLogins(clock)


def named(pending: PendingLogins, login: PendingLogin) -> tuple[str, LoginVisit]:
    """Return cookie and visit of a browser whose person the provider has named."""
    cookie, visit = pending.visit(login.user_code, HERE)
    assert pending.answered(cookie, visit.state or "") is visit
    visit.person = "ada"
    return cookie, visit


def test_a_code_is_short_and_unlike_any_other_letter_or_digit(pending: PendingLogins) -> None:
    _, login = pending.begin(LAPTOP)
    assert re.fullmatch("[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}", login.user_code)
    typed = login.user_code.lower().replace("-", " ")
    assert normal_code(typed) == login.user_code
    assert pending.visit(typed, HERE)[1].login is login


def test_an_approved_login_gives_its_person_once(
    pending: PendingLogins, clock: VirtualClock
) -> None:
    code, login = pending.begin(LAPTOP)
    assert pending.ask(code) == (LoginStatus.PENDING, login)
    cookie, visit = named(pending, login)
    pending.decide(cookie, visit.form_token, is_approved=True)
    clock.advance(INTERVAL_SECONDS)
    assert pending.ask(code) == (LoginStatus.GRANTED, login)
    assert login.person == "ada"
    clock.advance(INTERVAL_SECONDS)
    assert pending.ask(code) == (LoginStatus.EXPIRED, None)
    with pytest.raises(NotFound, match="this code is unknown or has expired"):
        pending.visit(login.user_code, HERE)


def test_a_denied_login_gives_nobody(pending: PendingLogins) -> None:
    code, login = pending.begin(LAPTOP)
    cookie, visit = named(pending, login)
    pending.decide(cookie, visit.form_token, is_approved=False)
    for decide in (True, False):
        with pytest.raises(Conflict, match="approved or denied before"):
            pending.decide(cookie, visit.form_token, is_approved=decide)
    with pytest.raises(Conflict):
        pending.visit(login.user_code, HERE)
    assert pending.ask(code) == (LoginStatus.DENIED, login)
    assert login.person is None


def test_a_terminal_that_asks_too_fast_must_slow_down(
    pending: PendingLogins, clock: VirtualClock
) -> None:
    code, login = pending.begin(LAPTOP)
    pending.ask(code)
    clock.advance(INTERVAL_SECONDS - 1)
    assert pending.ask(code)[0] is LoginStatus.SLOW_DOWN
    assert login.interval_seconds == INTERVAL_SECONDS + 5
    cookie, visit = named(pending, login)
    pending.decide(cookie, visit.form_token, is_approved=True)
    clock.advance(INTERVAL_SECONDS)
    assert pending.ask(code)[0] is LoginStatus.SLOW_DOWN, "approved, but asked too fast"
    clock.advance(login.interval_seconds)
    assert pending.ask(code)[0] is LoginStatus.GRANTED


def test_the_interval_of_a_terminal_stays_below_a_minute(pending: PendingLogins) -> None:
    code, login = pending.begin(LAPTOP)
    for _ in range(50):
        pending.ask(code)
    assert login.interval_seconds == 60


def test_a_login_ends_after_ten_minutes(pending: PendingLogins, clock: VirtualClock) -> None:
    code, login = pending.begin(LAPTOP)
    cookie, visit = named(pending, login)
    clock.advance(LOGIN_SECONDS)
    assert pending.ask(code) == (LoginStatus.EXPIRED, None)
    with pytest.raises(NotAllowed, match="this login has expired: run castor login again"):
        pending.decide(cookie, visit.form_token, is_approved=True)
    with pytest.raises(NotFound):
        pending.visit(login.user_code, HERE)
    with pytest.raises(NotAllowed, match="in another browser, or has expired"):
        pending.decide(cookie, visit.form_token, is_approved=True)
    assert pending.ask("another code") == (LoginStatus.EXPIRED, None)


def test_a_cookie_of_another_browser_or_a_state_of_another_page_is_refused(
    pending: PendingLogins,
) -> None:
    _, login = pending.begin(LAPTOP)
    cookie, visit = pending.visit(login.user_code, HERE)
    other_cookie, other = pending.visit(login.user_code, HERE)
    state = visit.state or ""
    for wrong in (None, "", "no such cookie", "\ud800"):
        with pytest.raises(NotAllowed, match="another browser"):
            pending.answered(wrong, state)
    with pytest.raises(NotAllowed, match="not for this page"):
        pending.answered(other_cookie, state)
    assert pending.answered(cookie, state) is visit
    with pytest.raises(NotAllowed, match="not for this page"):
        pending.answered(cookie, state)
    visit.person = "ada"
    with pytest.raises(NotAllowed, match="not one of this page"):
        pending.decide(cookie, other.form_token, is_approved=True)
    with pytest.raises(NotAllowed, match="not one of this page"):
        pending.decide(other_cookie, other.form_token, is_approved=True)
    assert login.is_open


def test_codes_can_not_be_guessed_by_force(pending: PendingLogins, clock: VirtualClock) -> None:
    _, login = pending.begin(LAPTOP)
    for _ in range(MOST_WRONG):
        with pytest.raises(NotFound):
            pending.visit("BBBB-BBBB", HERE)
    for code in ("BBBB-BBBB", login.user_code):
        with pytest.raises(Throttled, match="too many wrong codes") as refused:
            pending.visit(code, HERE)
        assert refused.value.retry_after_seconds == LOGIN_SECONDS
    pending.visit(login.user_code, "192.0.2.2")
    clock.advance(LOGIN_SECONDS)
    with pytest.raises(NotFound):
        pending.visit("BBBB-BBBB", HERE)
    _, later = pending.begin(LAPTOP)
    pending.visit(later.user_code, HERE)


def test_addresses_of_one_ipv6_network_share_their_limit(pending: PendingLogins) -> None:
    for number in range(MOST_WRONG):
        with pytest.raises(NotFound):
            pending.visit("BBBB-BBBB", f"2001:db8::{number}")
    with pytest.raises(Throttled):
        pending.visit("BBBB-BBBB", "2001:db8::ffff")
    with pytest.raises(NotFound):
        pending.visit("BBBB-BBBB", "2001:db8:0:1::1")


def test_the_page_of_a_login_is_opened_a_few_times(pending: PendingLogins) -> None:
    _, login = pending.begin(LAPTOP)
    for _ in range(MOST_VISITS):
        pending.visit(login.user_code, HERE)
    with pytest.raises(Conflict, match="opened too often"):
        pending.visit(login.user_code, HERE)


def test_few_logins_are_pending_of_an_address_and_of_all(
    pending: PendingLogins, clock: VirtualClock
) -> None:
    for _ in range(MOST_OF_ADDRESS):
        pending.begin(LAPTOP)
    clock.advance(60.0)
    with pytest.raises(Throttled, match=r"10 logins are pending: .* in 540 s"):
        pending.begin(LAPTOP)
    for number in range(MOST_PENDING - MOST_OF_ADDRESS):
        pending.begin(LoginTerminal("", f"host {number}"))
    with pytest.raises(Throttled, match="1000 logins are pending"):
        pending.begin(LoginTerminal("", "192.0.2.2"))
    clock.advance(LOGIN_SECONDS - 60.0)
    pending.begin(LAPTOP)


def test_a_login_whose_token_was_not_stored_is_asked_for_again(
    pending: PendingLogins, clock: VirtualClock
) -> None:
    code, login = pending.begin(LAPTOP)
    cookie, visit = named(pending, login)
    pending.decide(cookie, visit.form_token, is_approved=True)
    assert pending.ask(code)[0] is LoginStatus.GRANTED
    pending.put_back(login)
    clock.advance(INTERVAL_SECONDS)
    assert pending.ask(code) == (LoginStatus.GRANTED, login)
