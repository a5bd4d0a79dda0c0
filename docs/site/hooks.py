"""Hooks of the site: pages that are written for GitHub become pages of MkDocs.

Links from `docs/` to other files of the repository work on the site, too. What is linked to, and
what that links to, becomes a page: Markdown as it is, other text files as a block of code. The
README is the site's first page, all others lie below `repository/`.

Python-Markdown reads lists by other rules than GitHub: a nested item needs four spaces, and a list
needs an empty line before it. `as_python_markdown` makes up for both.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FIRST_PAGE = "README.md"
LISTING = "index.md"  # of a directory without a README
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}

_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_FENCE = re.compile(r"^ *(```+|~~~+)")
_ITEM = re.compile(r"^( *)(?:[-*+]|(\d+)[.)]) +(?=\S)")


class Item(NamedTuple):
    """Item of a list: columns of its mark and of its text, and its number if it has one."""

    indent: int
    content: int
    number: str | None


def item_of(line: str) -> Item | None:
    """Return the item that a line begins; None if it begins none."""
    mark = _ITEM.match(line)
    return None if mark is None else Item(len(mark[1]), mark.end(), mark[2])


def indent_of(line: str) -> int:
    """Return the number of spaces that a line begins with."""
    return len(line) - len(line.lstrip(" "))


def place_of(path: str) -> str:
    """Return the place in the site of a file, whose path is relative to the repository."""
    if path == FIRST_PAGE:
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def path_at(place: str) -> str:
    """Return the path of the file that has a place in the site, relative to the repository."""
    if place == "index.md":
        return FIRST_PAGE
    if not place.startswith("repository/"):
        return f"docs/{place}"
    path = place.removeprefix("repository/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def target_of(link: str, path: str) -> str | None:
    """Return the file that a link in the file at `path` leads to, relative to the repository.

    A directory stands for its README, or for a page with its files, which is no file itself.
    None: the link leads elsewhere, or to no file.
    """
    if ":" in link or link.startswith(("#", "/")):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link.partition("#")[0]))
    if (ROOT / target).is_dir():
        has_readme = (ROOT / target / "README.md").is_file()
        return posixpath.join(target, "README.md" if has_readme else LISTING)
    return target if (ROOT / target).is_file() else None


def outside_code(markdown: str) -> Iterator[tuple[bool, str]]:
    """Yield each line of a page, and whether it lies outside blocks of code."""
    fence: str | None = None
    for line in markdown.split("\n"):
        mark = _FENCE.match(line)
        if fence is None and mark is not None:
            fence = mark.group(1)
            yield False, line
        elif fence is not None:
            if mark is not None and line.strip().startswith(fence) and not line.strip("`~ "):
                fence = None
            yield False, line
        else:
            yield True, line


def linked_from(path: str) -> Iterator[str]:
    """Yield the files that a page links to. A file that is no page links to nothing."""
    if not path.endswith(".md"):
        return
    for is_text, line in outside_code(page_text(path)):
        for link in _LINK.findall(line) if is_text else ():
            target = target_of(link, path)
            if target is not None:
                yield target


def places_in(nav: object) -> Iterator[str]:
    """Yield the places of all pages that a navigation names."""
    match nav:
        case str(place):
            yield place
        case list(parts):
            for part in parts:
                yield from places_in(part)
        case dict(parts):
            for part in parts.values():
                yield from places_in(part)


def is_listing(path: str) -> bool:
    """Return whether a path stands for a directory without a README."""
    return posixpath.basename(path) == LISTING and not (ROOT / path).is_file()


def files_outside(pages: list[str]) -> set[str]:
    """Return what pages are or lead to, at any distance: files outside `docs/`, and listings."""
    waiting, known = list(pages), set[str]()
    while waiting:
        path = waiting.pop()
        if path not in known:
            known.add(path)
            waiting.extend(linked_from(path))
    return {path for path in known if not path.startswith("docs/") or is_listing(path)}


def page_text(path: str) -> str:
    """Return the page of a file: its own text, a block of code, or a directory's files."""
    if is_listing(path):
        directory = posixpath.dirname(path)
        names = sorted(file.name for file in (ROOT / directory).iterdir() if file.is_file())
        return "\n".join(
            [f"# `{directory}`", "", *(f"- [`{name}`]({name})" for name in names), ""]
        )
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# `{path}`\n\n````{language}\n{text.rstrip()}\n````\n"


class Rewriting:
    """Lines of a page whose lists are in the form of Python-Markdown.

    Attributes:
        lines: the lines so far.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._items: list[Item] = []  # that contain the present line, the outermost first
        self._has_parts = False  # whether an empty line is inside the present item

    def add(self, line: str, is_text: bool) -> None:
        """Add a line of the page; `is_text` is false inside blocks of code."""
        item = item_of(line) if is_text else None
        if item is None:
            self._add_text(line)
        elif self._interrupts_text(item):
            self._add_text(line.replace(f"{item.number}", f"{item.number}\\", 1))
        else:
            self._add_item(item, line)

    @property
    def _follows_text(self) -> bool:
        return bool(self.lines) and bool(self.lines[-1].strip())

    def _interrupts_text(self, item: Item) -> bool:
        """Return whether a line only seems to begin a list: its text begins with a number."""
        is_nested = not self._items or item.indent >= self._items[-1].content
        return is_nested and self._follows_text and item.number not in (None, "1")

    def _add_item(self, item: Item, line: str) -> None:
        begins_list = not self._items
        self._items = [outer for outer in self._items if item.indent >= outer.content]
        if self._follows_text and (begins_list or self._has_parts):
            self.lines.append("")
        self._has_parts = False
        self.lines.append(" " * (4 * len(self._items)) + line.lstrip(" "))
        self._items.append(item)

    def _add_text(self, line: str) -> None:
        if not line.strip():
            self._has_parts = True
        elif indent_of(line) == 0 and not self._follows_text:
            self._items = []
        if not line.strip() or not self._items or indent_of(line) == 0:
            self.lines.append(line)
            return
        beyond = max(0, indent_of(line) - self._items[-1].content)
        self.lines.append(" " * (4 * len(self._items) + beyond) + line.lstrip(" "))


def as_python_markdown(markdown: str) -> str:
    """Return a page with the lists that GitHub would show, in the form of Python-Markdown."""
    page = Rewriting()
    for is_text, line in outside_code(markdown):
        page.add(line, is_text)
    return "\n".join(page.lines)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file of the repository that the pages lead to."""
    pages = [f"docs/{file.src_uri}" for file in files if file.is_documentation_page()]
    pages += map(path_at, places_in(config.nav))
    for path in sorted(files_outside(pages)):
        files.append(File.generated(config, place_of(path), content=page_text(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead each link between files of the repository to the page of that file."""
    place = page.file.src_uri
    path, directory = path_at(place), posixpath.dirname(place)

    def lead(match: re.Match[str]) -> str:
        link = match.group(1)
        target = target_of(link, path)
        if target is None:
            return link
        place = target.removeprefix("docs/") if target.startswith("docs/") else place_of(target)
        _, hash_sign, anchor = link.partition("#")
        return posixpath.relpath(place, directory or ".") + hash_sign + anchor

    lines = outside_code(markdown)
    led = (_LINK.sub(lead, line) if is_text else line for is_text, line in lines)
    return as_python_markdown("\n".join(led))
