from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = "autoscaler.training", "autoscaler.policies", "autoscaler.policies.pools"


@pytest.mark.parametrize("package", (*PACKAGES, "hpo"))
def test_public_names_are_imported_from_their_package(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"{package}' has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_imports_none_of_its_modules(package: str) -> None:
    program = (
        f"import sys, {package}; print(*(m for m in sys.modules if m.startswith('{package}.')))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == ""
