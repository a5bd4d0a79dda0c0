"""Packages that Castor brings along, and what its own modules do when they are imported."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.supply_chain.licences import LIST, ROOT, licence_of, listed, pinned, problems, spdx

_IMPORT_ALL: Final = """
import importlib, sys
from pathlib import Path

events = []

def is_probe():
    # urllib3 binds its own address to see whether this machine has IPv6.
    frame = sys._getframe(2)
    return "urllib3" in frame.f_code.co_filename and frame.f_code.co_name == "_has_ipv6"

def note(event, arguments):
    if event in REFUSED and not is_probe():
        events.append(f"{event}{arguments[1:]}")
        raise PermissionError(f"{event} at import")

REFUSED = {"socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo",
           "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "urllib.Request"}
sys.addaudithook(note)
imported = 0
for path in sorted(Path(sys.argv[1]).glob(sys.argv[2])):
    name = ".".join(path.relative_to(sys.argv[1]).with_suffix("").parts).removesuffix(".__init__")
    if path.name == "__main__.py" or "migrations" in path.parts:
        continue  # these are run, not imported
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("autoscaler", "providers", "hpo"):
            raise
        continue  # an optional package is not installed
    imported += 1
    if events:
        sys.exit(f"{name}: {events}")
print(imported)
"""


def imports(directory: Path, pattern: str) -> subprocess.CompletedProcess[str]:
    """Import all modules of a pattern in a process that refuses the network."""
    command = [sys.executable, "-c", _IMPORT_ALL, str(directory), pattern]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=110)


@pytest.mark.parametrize(
    ("pattern", "least"),
    [("autoscaler/**/*.py", 400), ("providers/**/*.py", 50), ("hpo/**/*.py", 50)],
)
def test_no_module_uses_the_network_when_it_is_imported(pattern: str, least: int) -> None:
    completed = imports(ROOT, pattern)
    assert completed.returncode == 0, completed.stderr
    assert int(completed.stdout.split()[-1]) >= least


@pytest.mark.parametrize(
    "statement",
    ["socket.getaddrinfo('localhost', 80)", "socket.socket().bind(('127.0.0.1', 0))"],
)
def test_a_module_that_does_is_named(tmp_path: Path, statement: str) -> None:
    (tmp_path / "guilty.py").write_text(
        f"import contextlib, socket\nwith contextlib.suppress(OSError):\n    {statement}\n"
    )
    completed = imports(tmp_path, "*.py")
    assert completed.returncode == 1
    assert completed.stderr.startswith("guilty: ")


def test_every_package_has_a_licence_that_fits() -> None:
    licences = {package: licence_of(package) for package, _ in pinned()}
    assert list(problems(licences)) == []
    assert LIST.read_text() == listed(licences), "run: make licences"


def test_unknown_and_unfit_licences_are_told() -> None:
    licences = {
        "fits": "MIT AND (Apache-2.0)",
        "choice": "GPL-2.0-only OR MIT",
        "part": "MIT AND GPL-3.0-only",
        "strong": "AGPL-3.0-only",
        "weak": "LGPL-3.0-only",
        "psycopg": "LGPL-3.0-only",
        "unknown": None,
    }
    assert [line.split()[0] for line in problems(licences)] == [
        "part:",
        "strong:",
        "weak:",
        "unknown:",
    ]


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("Apache 2.0", "Apache-2.0"),
        ("License :: OSI Approved :: MIT License", "MIT"),
        ("License :: OSI Approved :: BSD License", "BSD-3-Clause"),
        ("License :: OSI Approved :: GNU General Public License v3 (GPLv3)", None),
        ("Copyright (c) 2001", None),
        ("", None),
    ],
)
def test_texts_of_metadata_are_read(text: str, licence: str | None) -> None:
    assert spdx(text) == licence


def test_an_absent_package_has_no_known_licence() -> None:
    assert licence_of("a-package-that-nobody-installs") is None


def test_controllers_of_the_terraform_modules_have_what_logins_need() -> None:
    """The packages are pinned by `make wheels`, or are those of the named extras."""
    written = subprocess.run(
        ["make", "--dry-run", "wheels"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.replace("\\\n", " ")
    (command,) = (line for line in written.splitlines() if "requirements-controller" in line)
    built = set(re.findall(r"--extra (\S+)", command))
    for cloud in ("aws", "gcp"):
        script = ROOT / "terraform/modules" / cloud / "files/controller.sh"
        (extras,) = re.findall(r"^install_castor controller (\S+)$", script.read_text(), re.M)
        assert {"server", "oidc", "telemetry", cloud} <= set(extras.split(",")) <= built
    packages = {name for name, _ in pinned()}
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    needed = {re.split(r"[\[>=<~]", requirement)[0] for requirement in optional["oidc"]}
    assert "authlib" in needed <= packages
