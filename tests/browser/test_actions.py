"""Actions of people on the pages, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from autoscaler.domain.access import Role
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Preference
from autoscaler.domain.trial import StudyStop
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.study_messages import StudyLease
from tests.browser.conftest import Visitor, visiting
from tests.browser.test_pages import PHONE, TOO_WIDE, WIDE, assert_accessible, picture
from tests.service.agents import SPEC
from tests.service.conftest import TOKEN, Api
from tests.service.jobs.test_resume import run
from tests.service.studies.test_courses import searched

TIMES = "\u00d7"
JOB_FILE = "name: digits\ncommand: python train.py\ninstances: {max: 3}\n"


def assert_usable_on_a_phone(visitor: Visitor) -> None:
    """Check the present page at the width of a phone, and return to the wide window."""
    visitor.page.set_viewport_size({"width": PHONE, "height": 900})
    assert not visitor.page.evaluate(TOO_WIDE)
    assert_accessible(visitor)
    visitor.page.set_viewport_size({"width": WIDE, "height": 900})


def test_a_person_signs_in_and_out_with_the_keyboard_alone(api: Api, chromium: Browser) -> None:
    with visiting(chromium, api, is_signed_in=False) as visitor:
        page = visitor.open("/jobs")
        expect(page).to_have_url(f"{api.url}/sign-in?next=/jobs")
        expect(page.locator("#token")).to_be_focused()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not known here")
        page.keyboard.type(TOKEN)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{api.url}/jobs")
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Sign out").focus()
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{api.url}/sign-in")
        visitor.open("/")
        expect(page).to_have_url(f"{api.url}/sign-in")
        assert [line for line in visitor.complaints if "401" not in line] == []
        visitor.complaints.clear()


def test_castor_open_signs_a_browser_in(api: Api, chromium: Browser) -> None:
    with visiting(chromium, api, is_signed_in=False) as visitor:
        visitor.page.goto(api.client.browser_link().url)
        expect(visitor.page.get_by_role("heading", level=1)).to_contain_text("Nothing is wrong")


def test_rows_pages_and_help_have_keys(api: Api, visitor: Visitor) -> None:
    for name in ("a", "b"):
        api.world.submit(name)
    page = visitor.open("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="a", exact=True)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{api.url}/jobs/b")
    page.wait_for_load_state("load")
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page).to_have_url(f"{api.url}/offers")
    page.wait_for_load_state("load")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("a")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{api.url}/jobs?q=a")
    expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_a_table_is_ordered_with_the_keyboard(api: Api, chromium: Browser, width: int) -> None:
    searched(api)
    with visiting(chromium, api, width) as visitor:
        page = visitor.open("/offers")
        page.get_by_role("button", name="Show").focus()
        for _ in range(4):
            page.keyboard.press("Tab")
        for state in ("ascending", "descending"):
            expect(page.locator("#sort-by-price")).to_be_focused()
            page.keyboard.press("Enter")
            head = page.locator(f"th[aria-sort={state}]")
            expect(head).to_contain_text("Price")
            page.wait_for_load_state("load")
        assert_accessible(visitor)
        for path in ("/studies?sort=-spent", "/studies/sweep?sort=value", "/costs?jobs=name"):
            visitor.open(path)
            expect(page.locator("th[aria-sort] .direction").first).to_be_visible()
            assert not page.evaluate(TOO_WIDE), path
            assert_accessible(visitor)
        assert visitor.complaints == []


def test_a_job_is_submitted_by_upload(api: Api, visitor: Visitor, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "data" / "a.txt").write_text("a")
    page = visitor.open("/")
    page.get_by_role("link", name="Submit a job").first.click()
    page.fill("#job", JOB_FILE.replace("max: 3", "max: 0"))
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert")).to_contain_text("instances.max")
    assert_usable_on_a_phone(visitor)
    visitor.complaints.clear()  # the browser tells of the status 422
    page.fill("#job", JOB_FILE)
    page.set_input_files("#files", folder)
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(f"{api.url}/jobs/digits?done=submitted")
    spec = api.world.store.jobs.get("digits").spec
    assert spec.bundle is not None and spec.instances.maximum == 3


def test_growth_is_watched_live(api: Api, visitor: Visitor) -> None:
    job = api.world.submit()
    api.world.set_target(job, 1)
    api.world.tick(4)
    page = visitor.open("/")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator(".offer")).to_contain_text(f"1 {TIMES} small")
    page.get_by_role("link", name="job", exact=True).first.focus()
    api.world.set_target(job, 3)
    api.world.tick(6)
    api.changes.note()
    expect(page.locator(".offer")).to_contain_text(f"3 {TIMES} small")
    expect(page.locator("h1")).to_contain_text("3 instances for $0.30/h")
    expect(page.get_by_role("link", name="job", exact=True).first).to_be_focused()


def test_an_objective_is_changed_and_a_job_stopped(api: Api, visitor: Visitor) -> None:
    api.client.submit(SPEC)
    page = visitor.open("/jobs/job")
    page.get_by_role("link", name="Change", exact=True).click()
    page.get_by_label("An hour of waiting is worth").check()
    page.fill("#value_of_time", "lots")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_contain_text("lots")
    expect(page.locator("#value_of_time")).to_have_value("lots")
    assert_usable_on_a_phone(visitor)
    visitor.complaints.clear()
    page.fill("#value_of_time", "40")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status").first).to_contain_text("changed")
    objective = api.world.store.jobs.get("job").spec.objective
    assert objective.preference is Preference.VALUE_OF_TIME
    page.get_by_role("link", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop the job").click()
    expect(page.get_by_role("status").first).to_contain_text("stopping")
    assert api.client.job("job").phase is not JobPhase.PENDING


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_a_study_is_stopped_after_a_question(api: Api, chromium: Browser, width: int) -> None:
    study = searched(api)
    with visiting(chromium, api, width) as visitor:
        kind = "phone" if width == PHONE else "light"
        page = visitor.open("/studies/sweep")
        assert not page.evaluate(TOO_WIDE)
        picture(visitor, f"study-{kind}")
        page.get_by_role("link", name="Change budget").click()
        assert_accessible(visitor)
        page.get_by_label("Budget ($)").fill("-3")
        page.get_by_role("button", name="Set the budget").click()
        expect(page.get_by_role("alert")).to_contain_text("budget: ")
        assert_accessible(visitor)
        picture(visitor, f"study-budget-{kind}")
        visitor.complaints.clear()  # the browser tells of the status 422
        page.get_by_label("Budget ($)").fill("30")
        page.get_by_role("button", name="Set the budget").click()
        expect(page.get_by_role("status").first).to_contain_text("has this budget")
        page.get_by_role("link", name="Stop", exact=True).click()
        assert_accessible(visitor)
        assert not page.evaluate(TOO_WIDE)
        picture(visitor, f"study-stop-{kind}")
        page.get_by_role("link", name="Keep it").click()
        assert study.lease(StudyLease("ada", 300.0)) is StudyStop.NOT
        page.get_by_role("link", name="Stop", exact=True).click()
        page.get_by_label("stop now").check()
        page.get_by_role("button", name="Stop the study").click()
        expect(page.get_by_role("status").first).to_contain_text("is stopping")
        assert study.lease(StudyLease("ada", 300.0)) is StudyStop.AT_ONCE
        expect(page.get_by_text("owner requested it")).to_be_visible()
        expect(page.get_by_role("link", name="Stop")).to_have_count(0)
        assert_accessible(visitor)
        picture(visitor, f"study-stopping-{kind}")
        assert visitor.complaints == []


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_a_budget_is_set_and_removed_after_a_question(
    api: Api, chromium: Browser, width: int
) -> None:
    with visiting(chromium, api, width) as visitor:
        kind = "phone" if width == PHONE else "light"
        page = visitor.open("/costs")
        page.get_by_role("link", name="Add a budget").click()
        page.get_by_label("Name").fill("nlp")
        page.get_by_label("A month").fill("-5")
        page.get_by_role("button", name="Set the budget").click()
        expect(page.get_by_role("alert")).to_contain_text("month_usd: ")
        assert_accessible(visitor)
        assert not page.evaluate(TOO_WIDE)
        picture(visitor, f"budget-{kind}")
        visitor.complaints.clear()  # the browser tells of the status 422
        page.get_by_label("A month").fill("500")
        page.get_by_role("button", name="Set the budget").click()
        expect(page.get_by_role("status").first).to_contain_text("The budget is set")
        assert_accessible(visitor)
        assert not page.evaluate(TOO_WIDE)
        picture(visitor, f"budgets-{kind}")
        page.get_by_role("link", name="Change the budget of team:nlp").click()
        page.get_by_label("An hour").fill("20")
        page.get_by_role("button", name="Set the budget").click()
        page.get_by_role("link", name="Remove the budget of team:nlp").click()
        expect(page.get_by_text("$500 a month (UTC), $20/h")).to_be_visible()
        assert_accessible(visitor)
        picture(visitor, f"budget-removal-{kind}")
        page.get_by_role("button", name="Remove the budget").click()
        expect(page.get_by_role("status").first).to_contain_text("The budget is removed")
        assert api.client.budgets() == () and visitor.complaints == []


def test_a_person_is_removed_after_a_question(api: Api, visitor: Visitor) -> None:
    api.client.invite("ada", InvitationRequest(Role.VIEWER))
    page = visitor.open("/people")
    picture(visitor, "people-with-ada-light")
    page.get_by_role("link", name="Remove ada").click()
    assert_accessible(visitor)
    assert_usable_on_a_phone(visitor)
    picture(visitor, "person-removal-light")
    page.get_by_role("button", name="Remove the person").click()
    expect(page.get_by_role("status").first).to_contain_text("is removed")
    assert [person.name for person in api.client.people()] == ["owner"]


def test_an_ended_job_is_submitted_again(api: Api, visitor: Visitor) -> None:
    run(api, SPEC)
    page = visitor.open("/jobs/job")
    page.get_by_role("link", name="Submit again").click()
    assert_accessible(visitor)
    assert_usable_on_a_phone(visitor)
    page.fill("#name", "fresh")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).to_have_url(f"{api.url}/jobs/fresh?done=submitted")
    assert api.client.job("fresh").phase is JobPhase.PENDING


def test_the_theme_is_switched_and_kept(visitor: Visitor) -> None:
    page = visitor.open("/")
    light = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    page.get_by_role("button", name="Dark page").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert dark != light
    visitor.open("/offers")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_all_works_without_scripts(api: Api, chromium: Browser) -> None:
    api.client.submit(SPEC)
    with visiting(chromium, api, scripts=False) as visitor:
        page = visitor.page
        page.get_by_role("button", name="Freeze").click()
        expect(page.get_by_role("status").first).to_contain_text("Frozen")
        page.get_by_role("button", name="Unfreeze").click()
        page.get_by_role("link", name="Drain").click()
        page.get_by_role("button", name="End every job").click()
        expect(page.get_by_role("status").first).to_contain_text("Every job ends")
        page.fill("#search", "jo")
        page.press("#search", "Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
    assert api.client.job("job").phase is not JobPhase.PENDING


def test_people_get_tokens_and_sessions_end(api: Api, visitor: Visitor) -> None:
    page = visitor.open("/people")
    page.fill("#name", "ada")
    page.get_by_role("button", name="Invite").click()
    token = page.locator(".secret").inner_text()
    assert api.stranger(token).jobs() == ()
    page = visitor.open("/people/me")
    own = page.locator("tr", has_text="this one")
    own.get_by_role("link", name="Revoke").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Revoke browser-")
    assert_accessible(visitor)
    assert_usable_on_a_phone(visitor)
    page.get_by_role("button", name="Revoke the token").click()
    expect(page).to_have_url(f"{api.url}/sign-in?next=/people/owner%3Fdone%3Drevoked")


@pytest.mark.parametrize("width", [1440, 380])
def test_a_page_of_an_unknown_job_leads_back(api: Api, chromium: Browser, width: int) -> None:
    with visiting(chromium, api, width) as visitor:
        page = visitor.open("/jobs/none")
        visitor.complaints.clear()  # the browser tells of the status 404
        expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
        page.get_by_role("link", name="Go to the fleet").click()
        expect(page).to_have_url(f"{api.url}/")
