"""Imports of `castor` before it runs a command: few, so that its start stays short."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from autoscaler.extras import EXTRA_OF

# Packages that take long to import. A command imports what it needs when it is called.
SLOW = (
    "alembic",
    "cryptography",
    "fastapi",
    "jinja2",
    "numpy",
    "optuna",
    "pydantic",
    "rich",
    "scipy",
    "sqlalchemy",
    "torch",
    "yaml",
)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_no_slow_package_is_imported_for_an_option(option: str) -> None:
    program = (
        "import sys\n"
        "from autoscaler.cli.app import app\n"
        f"app(['{option}'], standalone_mode=False)\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        f"print('imported:', *sorted(tops.intersection({SLOW})))\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert completed.stdout.splitlines()[-1].strip() == "imported:"


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("jwt", ["serve", "--state", "{}/state"], "server"),
        ("sqlalchemy", ["backup", "{}/file"], "server"),
        ("scipy", ["compare", "--policies", "marginal"], "server"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(
    module: str, words: list[str], extra: str, tmp_path: Path
) -> None:
    arguments = ["castor", *(word.format(tmp_path) for word in words)]
    program = (
        f"import sys; sys.modules['{module}'] = None; sys.argv = {arguments}\n"
        "from autoscaler.cli.app import main; main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == (
        f"castor: {words[0]}: {module} is not installed: pip install "
        f"'castor-autoscaler[{extra}]'\n"
    )


def test_each_package_of_the_controller_has_its_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    packages = {
        extra: {re.split(r"[^a-z0-9-]", line)[0] for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    distributions = {
        module: {name.lower().replace("_", "-") for name in names}
        for module, names in packages_distributions().items()
    }
    for module, extra in EXTRA_OF.items():
        assert distributions[module] & packages[extra], module
    of_server = {name for module in EXTRA_OF for name in distributions[module]}
    assert packages["server"] - of_server == {"httptools"}, "uvicorn goes without that one"
