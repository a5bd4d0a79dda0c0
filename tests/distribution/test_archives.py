"""The wheel and the source archive: what they contain, and what their metadata says."""

from __future__ import annotations

import configparser
import email.message
import email.parser
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = ("autoscaler", "hpo", "providers")
# What a checkout has that no archive may have.
NOT_SOURCE = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "*.egg-info",
)
JUNK = re.compile(r"__pycache__|\.py[co]$|_cache/|\.hypothesis|\.venv|\.DS_Store|~$|\.orig$")
# As a front end such as `python -m build` does: the source archive, and the wheel from it.
BUILD = """
import sys
from setuptools import build_meta
getattr(build_meta, sys.argv[1])(sys.argv[2])
"""
pytestmark = pytest.mark.timeout(300)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@dataclass(frozen=True)
class Archives:
    """Both archives of a release, built from a copy of this tree."""

    sdist: Path
    wheel: Path

    @cached_property
    def in_sdist(self) -> frozenset[str]:
        """Files of the source archive, without its own top directory."""
        with tarfile.open(self.sdist) as archive:
            names = (part.name.partition("/")[2] for part in archive if part.isfile())
            return frozenset(names)

    @cached_property
    def in_wheel(self) -> frozenset[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return frozenset(archive.namelist())

    def of_wheel(self, name: str) -> str:
        """Return the text of a file of the wheel's `dist-info`."""
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.read(f"{self.information}/{name}").decode()

    @property
    def information(self) -> str:
        return f"castor_autoscaler-{PROJECT['version']}.dist-info"


def build(kind: str, source: Path, target: Path) -> None:
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(target)]
    completed = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=250)
    assert completed.returncode == 0, completed.stderr[-3000:]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    directory = tmp_path_factory.mktemp("archives")
    shutil.copytree(ROOT, directory / "source", ignore=NOT_SOURCE)
    build("sdist", directory / "source", directory)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    (unpacked,) = (directory / "unpacked").iterdir()
    build("wheel", unpacked, directory)
    (wheel,) = directory.glob("*.whl")
    return Archives(sdist, wheel)


def files_below(folder: str) -> set[str]:
    """Return the files below a folder of this tree."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def files_of_packages() -> set[str]:
    return set().union(*map(files_below, PACKAGES))


def test_their_names_have_the_version(archives: Archives) -> None:
    version = PROJECT["version"]
    assert archives.sdist.name == f"castor_autoscaler-{version}.tar.gz"
    assert archives.wheel.name == f"castor_autoscaler-{version}-py3-none-any.whl"


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(archives: Archives) -> None:
    outside = (f"{archives.information}/", "castor_autoscaler-")
    inside = {name for name in archives.in_wheel if not name.startswith(outside)}
    assert inside == files_of_packages()


def test_the_wheel_has_the_jobs_of_the_demo(archives: Archives) -> None:
    place = f"castor_autoscaler-{PROJECT['version']}.data/data/share/castor-autoscaler/examples/"
    brought = {name.removeprefix(place) for name in archives.in_wheel if name.startswith(place)}
    examples = {"chargpt": ("job.yaml", "train.py"), "digits": ("job.yaml", "train.py")}
    assert {f"{job}/{file}" for job, files in examples.items() for file in files} <= brought


def test_the_source_archive_can_be_built_tested_and_read(archives: Archives) -> None:
    needed = {
        *files_of_packages(),
        "pyproject.toml",
        "requirements.lock",
        "Makefile",
        "mkdocs.yml",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        ".ci/run",
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")),
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
        *files_below("examples"),
    }
    assert needed - archives.in_sdist == set()


def test_no_archive_has_junk(archives: Archives) -> None:
    found = {name for name in archives.in_wheel | archives.in_sdist if JUNK.search(name)}
    assert found == set()


def test_each_package_says_that_it_has_types(archives: Archives) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= archives.in_wheel


def test_the_metadata_is_valid_and_has_the_readme_and_the_licence(archives: Archives) -> None:
    metadata = Metadata.from_email(archives.of_wheel("METADATA"), validate=True)
    assert (metadata.name, str(metadata.version)) == (PROJECT["name"], PROJECT["version"])
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert f"{archives.information}/licenses/LICENSE" in archives.in_wheel
    assert metadata.description_content_type == "text/markdown"
    assert (metadata.description or "").strip() == (ROOT / "README.md").read_text().strip()
    assert str(metadata.requires_python) == PROJECT["requires-python"]


def message_of(archives: Archives) -> email.message.Message:
    return email.parser.HeaderParser().parsestr(archives.of_wheel("METADATA"))


def test_the_extra_demo_brings_all_that_the_demo_needs(archives: Archives) -> None:
    texts = message_of(archives).get_all("Requires-Dist") or []
    of_demo = [
        requirement
        for requirement in map(Requirement, texts)
        if requirement.marker is not None
        and requirement.marker.evaluate({"extra": "demo"})
        and not requirement.marker.evaluate({"extra": "none"})
    ]
    extras = {extra for requirement in of_demo for extra in requirement.extras}
    assert extras == {"server", "training", "plot"}
    assert "scikit-learn" in {requirement.name for requirement in of_demo}


def test_every_extra_that_a_message_names_is_there(archives: Archives) -> None:
    named = {
        extra
        for file in sorted(files_of_packages())
        if file.endswith(".py")
        for text in re.findall(r'from_extras\(\s*"([^"]+)"', (ROOT / file).read_text())
        for extra in text.split(",")
    }
    assert named
    assert named <= set(message_of(archives).get_all("Provides-Extra") or [])


def test_the_entry_points_can_be_imported(archives: Archives) -> None:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(archives.of_wheel("entry_points.txt"))
    assert parser["console_scripts"]["castor"] == "autoscaler.cli.app:main"
    assert set(parser["castor.providers"]) == {"aws", "gcp"}
    for section in parser.sections():
        for target in parser[section].values():
            module, _, name = target.partition(":")
            assert callable(getattr(import_module(module), name))
