"""Debian's Chromium, which `.ci/run` installs, in place of a browser that Playwright downloads."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--force-color-profile=srgb")


def chromium_path() -> str | None:
    """Return the path of Chromium; None if it is not installed."""
    named = os.environ.get("CASTOR_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


def launched(playwright: Playwright) -> Browser:
    """Return a browser without a window."""
    return playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
