"""Imports of `castor` before it runs a command: few, so that its start stays short."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
