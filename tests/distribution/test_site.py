"""The site of docs/: a strict build, with the links, lists and tables that GitHub shows."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What a page is made of. Paragraphs are left out: lists differ in where they have some.
COUNTED = {"h1", "h2", "h3", "h4", "li", "ol", "ul", "pre", "table", "tr", "th", "td", "img"}


def hooks() -> ModuleType:
    specification = importlib.util.spec_from_file_location("hooks", ROOT / "docs/site/hooks.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


HOOKS = hooks()


class Parts(HTMLParser):
    """Counts of the elements of a page, and what the page loads or links to.

    Attributes:
        counts: elements inside the text of the page, by name.
        loaded: addresses of scripts, style sheets, fonts and pictures.
    """

    def __init__(self, container: str) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.loaded: list[str] = []
        self._container = container
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in {"script", "img", "iframe"} and attributes.get("src"):
            self.loaded.append(attributes["src"] or "")
        if tag == "link" and attributes.get("rel") in {"stylesheet", "preconnect", "icon"}:
            self.loaded.append(attributes.get("href") or "")
        if self._depth and tag in COUNTED:
            self.counts[tag] += 1
        if tag == self._container:
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == self._container:
            self._depth -= 1


def parts_of(html: str, container: str) -> Parts:
    parts = Parts(container)
    parts.feed(html)
    return parts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    completed = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    return directory


def page_of(site: Path, document: Path) -> str:
    place = HOOKS.place_of(document.relative_to(ROOT).as_posix())
    name = "" if place == "index.md" else place.removesuffix(".md")
    return (site / name / "index.html").read_text()


def test_pages_of_the_site_have_what_github_shows(site: Path) -> None:
    github = MarkdownIt("commonmark").enable("table")
    differences = []
    for document in PAGES:
        expected = parts_of(f"<main>{github.render(document.read_text())}</main>", "main").counts
        actual = parts_of(page_of(site, document), "article").counts
        if expected != actual:
            differences.append((document.name, expected - actual, actual - expected))
    assert differences == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        elsewhere = [url for url in parts_of(page.read_text(), "main").loaded if "//" in url]
        assert elsewhere == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text()), sheet


def test_files_of_the_repository_that_pages_link_to_are_pages(site: Path) -> None:
    page = (site / "repository/examples/ported/elastic.py/index.html").read_text()
    assert "session" in page
    assert (site / "repository/CONTRIBUTING/index.html").is_file()


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("../examples", "examples/README.md"),
        ("recipes", "docs/recipes/index.md"),
        ("recipes/add-a-policy.md#a", "docs/recipes/add-a-policy.md"),
        ("../LICENSE", "LICENSE"),
        ("https://example.org/recipes", None),
        ("#section", None),
        ("no-such-file.md", None),
    ],
)
def test_a_link_leads_to_a_file_or_to_a_list_of_files(link: str, target: str | None) -> None:
    assert HOOKS.target_of(link, "docs/how-to.md") == target


def test_a_directory_without_a_readme_is_a_list_of_its_files() -> None:
    text = HOOKS.page_text("docs/recipes/index.md")
    assert text.startswith("# `docs/recipes`\n")
    assert "- [`add-a-policy.md`](add-a-policy.md)" in text


def test_the_navigation_is_grouped(site: Path) -> None:
    groups = ["Start", "Use", "Studies", "Clouds", "How it works", "Measured", "Reference"]
    home = (site / "index.html").read_text()
    positions = [home.index(f"{group}\n") for group in (*groups, "Contribute")]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("link", "named"),
    [
        ("[a page](no-such-page.md)", "no-such-page.md"),
        ("[a section](security.md#no-such-section)", "no-such-section"),
        ("[a file](../examples/no-such-file.py)", "no-such-file.py"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str, named: str) -> None:
    (tmp_path / "docs" / "site").mkdir(parents=True)
    for name in ("docs/security.md", "docs/site/hooks.py"):
        (tmp_path / name).write_text((ROOT / name).read_text() if "hooks" in name else "# Page\n")
    (tmp_path / "README.md").write_text("# Castor\n")
    (tmp_path / "docs" / "page.md").write_text(f"# Page\n\n{link}\n")
    configuration, _, _ = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")
    nav = "\nnav: [index.md, page.md, security.md]\n"
    (tmp_path / "mkdocs.yml").write_text(configuration + nav)
    completed = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert completed.returncode != 0
    assert named in completed.stderr


@pytest.mark.parametrize(
    ("github", "site"),
    [
        ("text\n- a\n- b", "text\n\n- a\n- b"),
        ("- a\n  - b\n  - c\n- d", "- a\n    - b\n    - c\n- d"),
        ("1. a\n   - b\n2. c", "1. a\n    - b\n2. c"),
        ("- a\n  more\n\ntext\n  more", "- a\n    more\n\ntext\n  more"),
        ("- a\n\n      code\n- b", "- a\n\n        code\n\n- b"),
        ("- has\n  100. Then", "- has\n    100\\. Then"),
        ("```\n- a\n  - b\n```", "```\n- a\n  - b\n```"),
    ],
)
def test_lists_are_put_as_the_site_reads_them(github: str, site: str) -> None:
    assert HOOKS.as_python_markdown(github) == site
