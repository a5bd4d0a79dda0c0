"""Terraform commands in copies of the modules, so that Terraform's files stay out of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[2] / "terraform" / "modules" / "aws"
GCP_MODULE = MODULE.parent / "gcp"
MIRROR_VARIABLE = "CASTOR_TERRAFORM_MIRROR"
PROVIDER = "registry.terraform.io/hashicorp/aws"


@dataclass(frozen=True, slots=True)
class Terraform:
    """Terraform in one directory, with providers from the mirror alone."""

    directory: Path
    command: str
    environment: Mapping[str, str]

    def run(self, *arguments: str, accepted: tuple[int, ...] = (0,)) -> tuple[int, str]:
        completed = subprocess.run(
            [self.command, *arguments],
            cwd=self.directory,
            env=dict(self.environment),
            capture_output=True,
            text=True,
        )
        assert completed.returncode in accepted, (
            f"{arguments}: {completed.stdout[-4000:]}{completed.stderr}"
        )
        return completed.returncode, completed.stdout


@pytest.fixture(scope="session")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mirror = os.environ.get(MIRROR_VARIABLE)
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    if not mirror or not (Path(mirror) / PROVIDER).is_dir():
        pytest.skip(f"{MIRROR_VARIABLE} names no directory with {PROVIDER} in it")
    path = tmp_path_factory.mktemp("terraform") / "terraformrc"
    path.write_text(
        "provider_installation {\n  filesystem_mirror {\n"
        f'    path    = "{mirror}"\n    include = ["{PROVIDER}"]\n'
        "  }\n}\n"
    )
    return path


def terraform_in(directory: Path, configuration: Path) -> Terraform:
    """Return Terraform in a directory with a copy of the module as ``aws``."""
    _copy(MODULE, directory)
    return _terraform(directory, {"TF_CLI_CONFIG_FILE": str(configuration)})


def _copy(module: Path, directory: Path) -> None:
    shutil.copytree(module, directory / module.name, ignore=shutil.ignore_patterns(".terraform*"))


def _terraform(directory: Path, variables: Mapping[str, str]) -> Terraform:
    inherited = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    environment = {
        **inherited,
        **variables,
        "TF_IN_AUTOMATION": "1",
        "TF_CLI_ARGS": "-no-color",
        "CHECKPOINT_DISABLE": "1",
    }
    command = shutil.which("terraform")
    assert command is not None
    return Terraform(directory, command, environment)


@pytest.fixture(scope="session")
def gcp_terraform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terraform]:
    """Yield Terraform, initialised, in a copy of GCP's module with a stand-in provider."""
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    pytest.importorskip("grpc", reason="grpcio is not installed")
    from tests.terraform.google_provider import serving

    directory = tmp_path_factory.mktemp("gcp")
    _copy(GCP_MODULE, directory)
    configuration = directory / "terraformrc"
    configuration.touch()
    with serving(directory) as variables:
        variables_of_terraform = {"TF_CLI_CONFIG_FILE": str(configuration), **variables}
        terraform = _terraform(directory / GCP_MODULE.name, variables_of_terraform)
        terraform.run("init", "-backend=false", "-input=false")
        yield terraform
