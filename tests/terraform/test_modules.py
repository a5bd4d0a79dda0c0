"""What holds of the module of every cloud, and needs no Terraform."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.terraform.conftest import GCP_MODULE, MODULE

MODULES = [MODULE, GCP_MODULE]
BLOCK = re.compile(
    r'^(variable|output) "(\w+)" \{\n(?:.*\n)*?  description = "(.*)"$', re.MULTILINE
)
REQUIRED = {
    "aws": {"deployment", "pools", "max_usd_per_hour", "fleet_usd"},
    "gcp": {"deployment", "pools", "max_usd_per_hour", "fleet_usd", "project", "region", "zones"},
}

pytestmark = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


def test_every_variable_and_output_is_in_the_readme(module: Path) -> None:
    readme = (module / "README.md").read_text()
    for name in ("variables", "outputs"):
        text = (module / f"{name}.tf").read_text()
        blocks = BLOCK.findall(text)
        assert len(blocks) == len(re.findall(r"^(?:variable|output) ", text, re.MULTILINE))
        for _, block, description in blocks:
            told = description.replace('\\"', '"')
            row = rf"^\| {block} \| {re.escape(told)} \|"
            assert re.search(row, readme, re.MULTILINE), f"{block}: not in README.md as it is"


def test_every_variable_has_a_type_and_a_check(module: Path) -> None:
    text = (module / "variables.tf").read_text()
    for block in re.split(r"^(?=variable )", text, flags=re.MULTILINE)[1:]:
        name = block.split('"')[1]
        assert re.search(r"^  type\s+=", block, re.MULTILINE), name
        is_free = "  type        = bool" in block or name == "prices_from"
        assert is_free or "  validation {" in block, name
    blocks = re.split(r"^(?=variable )", text, flags=re.MULTILINE)[1:]
    required = {one.split('"')[1] for one in blocks if "\n  default " not in one}
    assert required == REQUIRED[module.name]


def test_programs_are_programs(module: Path) -> None:
    for path in sorted((module / "files").glob("*.sh")):
        subprocess.run(["bash", "-n", str(path)], check=True)


def test_the_agent_is_started_as_on_every_cloud(module: Path) -> None:
    """A copy in each, since a module has to work where it is the only one that was copied."""
    for name in ("agent.sh", "datasets.sh"):
        assert (module / "files" / name).read_text() == (MODULE / "files" / name).read_text()
    agent = (module / "files" / "agent.sh").read_text()
    denied = re.search(r"^IPAddressDeny=(.*)$", agent, re.MULTILINE)
    assert denied is not None
    ec2, gce = {"169.254.169.254/32", "fd00:ec2::254/128"}, {"fd20:ce::254/128"}
    assert set(denied[1].split()) == ec2 | gce
