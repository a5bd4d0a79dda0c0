"""The configurations that `castor init` writes, as Terraform reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from autoscaler.cli.init.answers import Answers
from autoscaler.cli.init.run import write_configuration
from tests.terraform.conftest import MODULE, terraform_in

WHEEL = "castor_autoscaler-0.1.0-py3-none-any.whl"
ANSWERS = [Answers("aws", gpu="L4,H100:8"), Answers("gcp", project="my-project-1")]


@pytest.mark.parametrize("answers", ANSWERS, ids=lambda answers: answers.cloud)
def test_it_is_formatted(tmp_path: Path, answers: Answers) -> None:
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    write_configuration(answers, tmp_path / "new", asks=False)
    subprocess.run(["terraform", "fmt", "-check", "-diff", tmp_path / "new"], check=True)


@pytest.mark.timeout(300)
def test_it_is_valid_on_ec2(tmp_path: Path, configuration: Path) -> None:
    module = terraform_in(tmp_path, configuration)
    answers = Answers("aws", module=str(tmp_path / MODULE.name))
    write_configuration(answers, tmp_path / "new", asks=False)
    dist = tmp_path / "new" / "dist"
    dist.mkdir()
    for name in (WHEEL, "requirements-node.txt", "requirements-controller.txt"):
        (dist / name).write_text("")
    new = type(module)(tmp_path / "new", module.command, module.environment)
    new.run("init", "-backend=false", "-input=false")
    new.run("validate")
