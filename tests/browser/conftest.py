"""Pages in Chromium. The tests are skipped without it, unless CASTOR_BROWSER_TESTS is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.browser.chromium import chromium_path, launched
from tests.service.conftest import TOKEN, Api, served

PICTURES = Path(__file__).parents[2] / "docs" / "images"
PATIENCE_MILLISECONDS = 60_000  # for a browser on a busy machine
expect.set_options(timeout=PATIENCE_MILLISECONDS)
# What Chromium says of every form with a password and no name of a person.
HARMLESS = ("Password forms should have",)


@dataclass
class Visitor:
    """Person in a browser of their own, and what the browser complained of."""

    api: Api
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open a page and wait until its scripts have run."""
        self.page.goto(self.api.url + path, wait_until="load")
        return self.page

    def sign_in(self, token: str = TOKEN) -> None:
        """Sign in on the page for that."""
        self.open("/sign-in")
        self.page.fill("#token", token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(self.api.url + "/")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield the browser of a module. While it lives, its thread can run no other event loop."""
    if chromium_path() is None:
        if os.environ.get("CASTOR_BROWSER_TESTS"):
            pytest.fail("Chromium is not installed: apt-get install chromium")
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()


@contextmanager
def visiting(
    browser: Browser,
    api: Api,
    width: int = 1440,
    scheme: str = "light",
    scripts: bool = True,
    is_signed_in: bool = True,
) -> Iterator[Visitor]:
    """Yield a person with a window of some width, who prefers dark or light.

    A test fails on an error or warning in the console that it has not cleared.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    visitor = Visitor(api, context, context.new_page())

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(HARMLESS):
            visitor.complaints.append(message.text)

    visitor.page.on("console", note)
    visitor.page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
    try:
        if is_signed_in:
            visitor.sign_in()
        yield visitor
        assert visitor.complaints == []
    finally:
        context.close()


@pytest.fixture
def visitor(api: Api, chromium: Browser) -> Iterator[Visitor]:
    """Yield a person who is signed in at the API of this test."""
    with visiting(chromium, api) as signed_in:
        yield signed_in
        assert signed_in.complaints == []


@pytest.fixture
def api(tmp_path: Path, template: Path) -> Iterator[Api]:
    """Yield the API of a small deployment."""
    from tests.controller.world import World

    with served(World(tmp_path, template=template), tmp_path) as served_api:
        yield served_api
