"""Every page in a real browser: accessible, quiet in the console, and no wider than its window.

With CASTOR_PICTURES=1 the tests write the pictures of docs/images; with a directory in place of 1,
they write those of all pages there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from autoscaler.domain.job import JobRecord
from autoscaler.service.instances.assignments import Assignments
from tests.browser.conftest import PICTURES, Visitor, visiting
from tests.browser.fleets import (
    FleetState,
    in_trouble,
    many_jobs,
    no_job,
    one_job,
    usual_fleet,
)
from tests.service.conftest import Api, served

PATHS = (
    "/",
    "/jobs",
    "/jobs/chargpt",
    "/jobs/birds/change",
    "/jobs/birds/stop",
    "/jobs/birds/log",
    "/submit",
    "/offers",
    "/costs",
    "/costs/budgets",
    "/studies",
    "/people",
    "/people/me",
    "/audit",
    "/fleet/drain",
)
# Pictures of the documents.
SHOWN = {
    *("fleet-light", "fleet-dark", "fleet-phone", "incident-light", "jobs-chargpt-light"),
    *("jobs-birds-change-light", "costs-light", "submit-light", "people-me-light"),
    "other-bills-light",
}
WIDE, PHONE = 1440, 380
SERIOUS = ("serious", "critical")
TOO_WIDE = "document.scrollingElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Yield the API of a fleet of five jobs."""
    with (
        mock.patch.object(Assignments, "checkpoint_place", _shown_place),
        served(usual_fleet(), tmp_path_factory.mktemp("usual")) as api,  # type: ignore[arg-type]
    ):
        yield api


def _shown_place(assignments: Assignments, job: JobRecord) -> str:
    """Return the location of a job's checkpoints in pictures: not that of this test."""
    return f"/var/lib/castor/jobs/{job.files_of}/checkpoints"


def settle(visitor: Visitor, path: str) -> None:
    """Open a page with all that is computed beside it."""
    visitor.open(path)
    if path == "/":
        visitor.page.wait_for_timeout(700)
        visitor.open(path)


def picture(visitor: Visitor, name: str) -> None:
    """Write a picture of the present page, if pictures are asked for."""
    wanted = os.environ.get("CASTOR_PICTURES", "")
    if wanted and (wanted != "1" or name in SHOWN):
        directory = PICTURES if wanted == "1" else Path(wanted)
        directory.mkdir(parents=True, exist_ok=True)
        visitor.page.wait_for_timeout(300)
        visitor.page.screenshot(path=directory / f"dashboard-{name}.png", full_page=True)


def name_of(path: str) -> str:
    return path.strip("/").replace("/", "-") or "fleet"


def assert_accessible(visitor: Visitor) -> None:
    found = Axe().run(visitor.page).response["violations"]
    serious = [
        (rule["id"], [node["target"] for node in rule["nodes"]][:3])
        for rule in found
        if rule["impact"] in SERIOUS
    ]
    assert serious == []


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")])
def test_every_page_is_accessible_quiet_and_fits(
    usual: Api, chromium: Browser, width: int, scheme: str
) -> None:
    with visiting(chromium, usual, width, scheme) as visitor:
        for path in PATHS:
            settle(visitor, path)
            assert visitor.page.locator("h1").count() == 1, path
            assert not visitor.page.evaluate(TOO_WIDE), path
            assert_accessible(visitor)
            kind = "phone" if width == PHONE else scheme
            picture(visitor, f"{name_of(path)}-{kind}")
        assert visitor.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "dark"), (PHONE, "light")])
def test_the_page_to_sign_in_is_accessible(
    usual: Api, chromium: Browser, width: int, scheme: str
) -> None:
    with visiting(chromium, usual, width, scheme, is_signed_in=False) as visitor:
        visitor.open("/sign-in")
        assert_accessible(visitor)
        picture(visitor, f"sign-in-{scheme}")


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")])
def test_refusals_and_other_bills_are_accessible_and_fit(
    usual: Api, chromium: Browser, width: int, scheme: str
) -> None:
    kind = "phone" if width == PHONE else scheme
    with visiting(chromium, usual, width, scheme) as visitor:
        page = visitor.page
        visitor.open("/jobs/chargpt/counterfactual")
        expect(page.locator("table")).to_contain_text("Castor's own rule")
        assert not page.evaluate(TOO_WIDE)
        assert_accessible(visitor)
        picture(visitor, f"other-bills-{kind}")
        visitor.open("/costs")
        expect(page.get_by_role("link", name="all rules for chargpt")).to_be_visible()
        assert visitor.complaints == []
        visitor.open("/jobs/none")
        visitor.complaints.clear()  # the browser tells of the status 404
        expect(page.get_by_role("navigation")).to_contain_text("Costs")
        assert_accessible(visitor)
        picture(visitor, f"unknown-job-{kind}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chosen_theme_outweighs_that_of_the_system(
    usual: Api, chromium: Browser, scheme: str
) -> None:
    grounds = {"light": "rgb(247, 247, 245)", "dark": "rgb(16, 19, 23)"}
    other = "dark" if scheme == "light" else "light"
    with visiting(chromium, usual, WIDE, scheme) as visitor:
        page = visitor.open("/jobs")
        expect(page.locator("html")).to_have_css("background-color", grounds[scheme])
        page.get_by_role("button", name=f"{other} page").click()
        expect(page.locator("html")).to_have_css("background-color", grounds[other])
        assert_accessible(visitor)


def test_all_of_the_navigation_is_seen_on_a_phone(usual: Api, chromium: Browser) -> None:
    with visiting(chromium, usual, PHONE) as visitor:
        page = visitor.open("/")
        for link in page.get_by_role("navigation").get_by_role("link").all():
            box = link.bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= PHONE


def test_the_first_page_answers_three_questions(usual: Api, chromium: Browser) -> None:
    with visiting(chromium, usual) as visitor:
        settle(visitor, "/")
        page = visitor.page
        expect(page.locator("h1")).to_contain_text("Nothing is wrong. 5 jobs run on 11 instances")
        expect(page.locator("h1")).to_contain_text("$79.12/h")
        row = page.locator("tbody", has_text="birds").first
        expect(row.locator(".below .predicted")).to_contain_text("ends in")
        expect(row).to_contain_text("deadline in 2 h 5 min")
        expect(row.locator(".why")).to_contain_text("the cheapest in time")
        expect(page.locator("aside")).to_contain_text("no room")
        expect(page.locator("aside")).to_contain_text("One more instance is worth about")
        assert row.locator(".sparkline").count() == 1


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")])
def test_an_incident_is_seen_at_a_glance(
    chromium: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    fleet = in_trouble(usual_fleet())
    with served(fleet, tmp_path) as api, visiting(chromium, api, width, scheme) as visitor:  # type: ignore[arg-type]
        settle(visitor, "/")
        page = visitor.page
        expect(page.locator("h1")).to_contain_text(
            "Wrong: aws is silent, birds makes no progress. 5 jobs"
        )
        texts = page.locator(".notice.danger").all_inner_texts()
        assert any("is silent: its 11 instances ($79.12/h)" in text for text in texts)
        assert any("birds makes no progress" in text for text in texts)
        first = page.locator("table.jobs tbody").first
        expect(first).to_contain_text("birds")
        assert_accessible(visitor)
        picture(visitor, f"incident-{'phone' if width == PHONE else scheme}")


@pytest.mark.parametrize(
    ("name", "fleet", "text"),
    [
        ("empty", no_job, "Nothing runs and nothing costs"),
        ("one-job", one_job, "1 job runs"),
        ("200-jobs", lambda: many_jobs(200), "150 jobs run on 150 instances"),
    ],
)
def test_fleets_of_other_sizes(
    chromium: Browser, tmp_path: Path, name: str, fleet: Callable[[], FleetState], text: str
) -> None:
    with served(fleet(), tmp_path) as api, visiting(chromium, api) as visitor:  # type: ignore[arg-type]
        settle(visitor, "/")
        expect(visitor.page.locator("h1")).to_contain_text(text)
        assert_accessible(visitor)
        picture(visitor, f"{name}-light")
        visitor.open("/jobs")
        picture(visitor, f"{name}-list-light")
        assert visitor.complaints == []


@pytest.mark.skipif(not os.environ.get("CASTOR_PICTURES"), reason="it is for pictures alone")
def test_pictures_of_a_large_fleet(chromium: Browser, tmp_path: Path) -> None:
    fleet = many_jobs(10_000)
    with served(fleet, tmp_path) as api, visiting(chromium, api) as visitor:  # type: ignore[arg-type]
        settle(visitor, "/")
        picture(visitor, "10000-jobs-light")
        visitor.open("/jobs")
        picture(visitor, "10000-jobs-list-light")
