"""Time until the controller's pages show something, and their size, with a large fleet.

    python benchmarks/dashboard.py [--jobs 10000 --instances 10]

The server of the product answers over HTTP, with an SQLite store that it leads and a controller
that has ticked once. Its first request is that of the costs, whose sums are made beside it. In the
table `first` is the first request of a page after that, `again` the median of ten. `paint` is the
first contentful paint of Chromium, from the begin of the navigation, with the style sheet and
scripts in its cache; the median of five. `page` is the page alone, `all` with all that it loads.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import ticks

from tests.browser.chromium import launched
from tests.controller import world as worlds
from tests.controller.cloud import QuickCloud
from tests.service.conftest import TOKEN, Api, served
from tests.store.led import led_store

PATHS = ("/costs", "/", "/jobs", "/jobs?phase=running&sort=name", "/offers", "/jobs/job-0")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
AGAIN, PAINTS = 10, 5


def request_times(client: httpx.Client, path: str) -> tuple[float, float, bytes]:
    """Return the seconds of the first request, the median of later ones, and the page."""
    seconds = []
    content = b""
    for _ in range(AGAIN + 1):
        began = time.perf_counter()
        reply = client.get(path)
        seconds.append(time.perf_counter() - began)
        assert reply.status_code == 200, reply.text[:500]
        content = reply.content
    return seconds[0], statistics.median(seconds[1:]), content


def seconds_until_added_up(client: httpx.Client) -> tuple[float, float]:
    """Return the time of the first page of costs, and that until one has all sums."""
    began = time.perf_counter()
    reply = client.get("/costs")
    first = time.perf_counter() - began
    while "Refresh" in reply.headers:
        time.sleep(0.05)
        reply = client.get("/costs")
    return first, time.perf_counter() - began


def loaded_bytes(client: httpx.Client, content: bytes) -> int:
    """Return the size of a page with all files that it loads."""
    files = set(re.findall(r'"(/static/[^"]*)"', content.decode()))
    return len(content) + sum(len(client.get(file).content) for file in files)


def paint_seconds(page: Page, address: str) -> float:
    """Return the median time of the first contentful paint."""
    times = []
    for _ in range(PAINTS):
        page.goto(address, wait_until="commit")
        while (painted := page.evaluate(PAINT)) < 0:
            page.wait_for_timeout(20)
        times.append(painted / 1000)
    return statistics.median(times)


def measure(api: Api) -> None:
    """Print a row for each page."""
    client = httpx.Client(base_url=api.url, headers={"Accept": "text/html"}, timeout=120)
    assert client.post("/sign-in", data={"token": TOKEN}).status_code == 303
    first, whole = seconds_until_added_up(client)
    print(f"first page of costs {first:.2f} s, with all sums {whole:.2f} s\n")
    print("| page | first | again | paint | page | all |\n|---|---|---|---|---|---|")
    with sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page()
        page.goto(f"{api.url}/sign-in")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("h1")
        for path in PATHS:
            first, again, content = request_times(client, path)
            paint = paint_seconds(page, api.url + path)
            loaded = loaded_bytes(client, content)
            print(
                f"| `{path}` | {first:.2f} s | {again:.2f} s | {paint:.2f} s "
                f"| {len(content) / 1000:.0f} kB | {loaded / 1000:.0f} kB |",
                flush=True,
            )
        browser.close()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--instances", type=int, default=10, help="instances of each job")
    arguments = parser.parse_args()
    worlds.open_store = led_store  # type: ignore[assignment]
    worlds.FileCloud = QuickCloud  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        world = ticks.deployment_of(directory, arguments.jobs, arguments.instances)
        with served(world, directory, completes_pages=False) as api:
            measure(api)


if __name__ == "__main__":
    main()
