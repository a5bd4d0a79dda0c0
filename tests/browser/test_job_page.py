"""The page of a job in a real browser: sliders, decisions, keys, and the page without scripts.

`test_pages.py` checks that it is accessible and fits its window.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import visiting
from tests.browser.fleets import usual_fleet
from tests.browser.test_pages import TOO_WIDE, assert_accessible, picture
from tests.service.conftest import Api, served
from tests.service.studies.test_courses import searched

PHONE = 380


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Yield the API of a fleet of simulated jobs."""
    with served(usual_fleet(), tmp_path_factory.mktemp("fleet")) as api:  # type: ignore[arg-type]
        yield api


def test_the_sliders_redraw_finish_cost_and_size(fleet: Api, chromium: Browser) -> None:
    with visiting(chromium, fleet) as visitor:
        page = visitor.open("/jobs/chargpt")
        assumed = page.locator("#assumed")
        expect(assumed).to_contain_text("Costs in all")
        slider = page.get_by_label("Value of an hour of waiting")
        before = slider.get_attribute("aria-valuetext")
        slider.focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        expect(assumed).to_contain_text("If an hour were worth $")
        expect(assumed).to_contain_text("With its own objective")
        assert slider.get_attribute("aria-valuetext") != before
        assert "value=" in page.url
        shown = assumed.inner_text()
        hours = page.get_by_label("It must end within, hours from now")
        expect(hours).not_to_be_visible()
        page.get_by_label("done by a deadline").check()
        expect(assumed).to_contain_text("If it had to end within 0.")
        expect(slider).not_to_be_visible()
        hours.fill("0.5")
        page.keyboard.press("Enter")
        expect(assumed).to_contain_text("If it had to end within 0.5 h")
        assert assumed.inner_text() != shown and "hours=0.5" in page.url
        assert "value=" not in page.url
        assert_accessible(visitor)
        picture(visitor, "what-if-light")
        assert visitor.complaints == []


def test_the_left_end_of_the_value_is_nothing(fleet: Api, chromium: Browser) -> None:
    with visiting(chromium, fleet) as visitor:
        page = visitor.open("/jobs/chargpt")
        page.get_by_label("Value of an hour of waiting").focus()
        page.keyboard.press("Home")
        expect(page.locator("#assumed")).to_contain_text("If an hour were worth $0")
        expect(page.locator("#assumed .assumed")).to_contain_text("nothing")
        assert visitor.complaints == []


def test_a_slider_survives_a_live_update(fleet: Api, chromium: Browser) -> None:
    with visiting(chromium, fleet) as visitor:
        page = visitor.open("/jobs/chargpt?hours=2")
        expect(page.locator("#assumed")).to_contain_text("If it had to end within 2 h")
        page.evaluate("document.body.dispatchEvent(new Event('changed'))")
        page.wait_for_timeout(500)
        expect(page.locator("#assumed")).to_contain_text("If it had to end within 2 h")
        assert page.locator("h1").count() == 1 and visitor.complaints == []


def test_a_decision_on_the_axis_opens_its_sentence(fleet: Api, chromium: Browser) -> None:
    with visiting(chromium, fleet) as visitor:
        page = visitor.open("/jobs/chargpt")
        tick = page.locator(".series.wide .decision-tick").first
        tick.focus()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("#decision-"))
        sentence = page.locator("li:target")
        expect(sentence).to_be_visible()
        sentence.locator("summary").click()
        expect(sentence.locator("dl")).to_contain_text("goodput after")


def test_the_page_works_without_scripts(fleet: Api, chromium: Browser) -> None:
    with visiting(chromium, fleet, scripts=False) as visitor:
        page = visitor.open("/jobs/chargpt")
        assert not page.get_by_label("Value of an hour of waiting").is_visible()
        page.fill("#value", "100")
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#assumed")).to_contain_text("If an hour were worth $100")
        page.get_by_label("done by a deadline").check()
        expect(page.locator("#value")).not_to_be_visible()
        page.fill("#hours", "0.5")
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#assumed")).to_contain_text("If it had to end within 0.5 h")
        expect(page.get_by_label("done by a deadline")).to_be_checked()
        page.get_by_text("All sizes and prices as a table").click()
        expect(page.locator("details table").first).to_contain_text("held")


def test_a_study_is_accessible_and_fits(api: Api, chromium: Browser) -> None:
    searched(api)
    for width in (1440, PHONE):
        with visiting(chromium, api, width) as visitor:
            for path in ("/studies", "/studies/sweep", "/jobs/sweep-0/log"):
                visitor.open(path)
                assert not visitor.page.evaluate(TOO_WIDE), path
                assert_accessible(visitor)
                if path == "/studies/sweep" and width != PHONE:
                    picture(visitor, "study-light")
            assert visitor.complaints == []
