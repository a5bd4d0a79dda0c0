from __future__ import annotations

import subprocess
import sys

import pytest


def imported_by(module: str) -> set[str]:
    tell = f"import sys; old = set(sys.modules); import {module}; print(*set(sys.modules) - old)"
    told = subprocess.run(
        [sys.executable, "-P", "-c", tell], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in told.stdout.split()}


def test_the_agent_needs_nothing_of_server_or_training() -> None:
    heavy = {"torch", "torchft", "scipy", "numpy", "sqlalchemy", "fastapi"}
    assert not imported_by("autoscaler.node.agent") & heavy


@pytest.mark.parametrize(
    "module", ["autoscaler.node.shims.shim", "autoscaler.lighthouse.supervisor"]
)
def test_what_stays_beside_training_imports_the_standard_library_only(module: str) -> None:
    assert imported_by(module) - sys.stdlib_module_names == {"autoscaler"}
