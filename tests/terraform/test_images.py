"""Templates of images: their form, and what their script puts on a machine, run on stand-ins.

Packer itself never ran them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform.conftest import MODULE

ROOT = MODULE.parents[2]
IMAGES = ROOT / "terraform" / "images"
TEMPLATES = sorted(IMAGES.glob("*.pkr.hcl"))
WHEEL = "castor_autoscaler-1-py3-none-any.whl"
CALLED = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
PROGRAMS = {
    **dict.fromkeys(("cloud-init", "nvidia-smi", "apt-get", "systemctl", "curl", "gpg"), ""),
    **dict.fromkeys(("docker", "nvidia-ctk", "pip", "castor", "python"), ""),
    "python3": 'mkdir -p "$3/bin"; for name in pip castor python; do '
    'ln -s "$(command -v $name)" "$3/bin/$name"; done\n',
}
SECRETS = (
    "root/.docker/config.json",
    "root/.aws/credentials",
    "root/.bash_history",
    "root/.config/gcloud/credentials.db",
    "home/ubuntu/.ssh/authorized_keys",
    "home/packer/.bash_history",
    "etc/ssh/ssh_host_ed25519_key",
)


class Builder:
    """A directory that the script takes for the whole disk of the machine that is imaged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = dict(PROGRAMS)
        for path in SECRETS:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("secret")
        for path in ("tmp/castor-wheels", "opt", "etc/apt/sources.list.d", "usr/share/keyrings"):
            (root / path).mkdir(parents=True)
        for name in (WHEEL, "requirements-node.txt"):
            (root / "tmp/castor-wheels" / name).touch()

    def prepare(self, failing: str = "nothing") -> subprocess.CompletedProcess[str]:
        """Run the script, in which calls with `failing` in them fail."""
        programs = self.root / "bin"
        programs.mkdir()
        for name, does in self.programs.items():
            fails = f'case "{name} $*" in *"{failing}"*) exit 9 ;; esac\n'
            (programs / name).write_text(f"#!/bin/bash\n{CALLED}{fails}{does}")
            (programs / name).chmod(0o755)
        for name in ("bash", "basename", "ls", "cp", "rm", "mkdir", "ln"):
            program = shutil.which(name)
            assert program is not None
            (programs / name).symlink_to(program)
        text = (IMAGES / "prepare.sh").read_text()
        text = re.sub(r"(?<![\w./])/(tmp|var|opt|etc|root|home|usr)/", rf"{self.root}/\1/", text)
        script = self.root / "script"
        script.write_text(text)
        environment = {"PATH": str(programs), "CALLS": str(self.root / "calls")}
        return subprocess.run(
            ["bash", str(script)], env=environment, capture_output=True, text=True
        )

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


def test_the_image_has_the_pinned_packages_and_docker(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    done = builder.prepare()
    assert done.returncode == 0, done.stderr
    packages, castor = [call for call in builder.calls if call.startswith("pip ")]
    for option in ("--require-hashes", "--no-deps", "--only-binary :all:"):
        assert option in packages
    assert packages.endswith(f" -r {tmp_path}/tmp/castor-wheels/requirements-node.txt")
    assert "--no-index" in castor and castor.endswith(WHEEL)
    assert "systemctl enable docker.service" in builder.calls
    assert (tmp_path / "opt/castor/requirements-node.txt").exists()
    # Else the start of an instance would skip the pins of its deployment (install.sh).
    assert not (tmp_path / "opt/castor/installed").exists()


def test_the_image_keeps_no_credentials_of_whoever_built_it(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    assert builder.prepare().returncode == 0
    assert not [path for path in SECRETS if (tmp_path / path).exists()]
    assert not (tmp_path / "tmp/castor-wheels").exists()
    assert builder.calls[-1] == "cloud-init clean --logs --machine-id"


def test_docker_and_its_toolkit_are_installed_where_the_base_lacks_them(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    assert builder.prepare().returncode == 0
    (installed,) = [call for call in builder.calls if call.startswith("apt-get install")]
    assert "docker.io" not in installed and "nvidia-container-toolkit" not in installed
    bare = Builder(tmp_path / "bare")
    del bare.programs["docker"]
    del bare.programs["nvidia-ctk"]
    # Installing it puts it on the path.
    bare.programs["apt-get"] = (
        f"[[ $* != *nvidia-container-toolkit* ]] || ln -s gpg {bare.root}/bin/nvidia-ctk\n"
    )
    done = bare.prepare()
    assert done.returncode == 0, done.stderr
    (installed,) = [call for call in bare.calls if call.startswith("apt-get install")]
    assert "docker.io" in installed and "nvidia-container-toolkit" in installed
    sources = bare.root / "etc/apt/sources.list.d/nvidia-container-toolkit.list"
    assert "signed-by=" in sources.read_text()


@pytest.mark.parametrize(
    ("lacks", "said"),
    [("bin/nvidia-smi", "NVIDIA's driver"), ("tmp/castor-wheels/requirements-node.txt", "wheels")],
)
def test_a_machine_without_what_the_image_needs_is_refused(
    tmp_path: Path, lacks: str, said: str
) -> None:
    if lacks == "bin/nvidia-smi" and shutil.which("nvidia-smi") is not None:
        pytest.skip("nvidia-smi is installed here")
    builder = Builder(tmp_path)
    builder.programs.pop(Path(lacks).name, None)
    (tmp_path / lacks).unlink(missing_ok=True)
    done = builder.prepare()
    assert done.returncode != 0
    assert done.stderr.startswith("castor: ") and said in done.stderr


@pytest.mark.parametrize("failing", ["pip install", "python -P", "castor --version"])
def test_a_step_that_fails_makes_no_image(tmp_path: Path, failing: str) -> None:
    assert Builder(tmp_path).prepare(failing).returncode != 0


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_is_formatted_and_declares_what_it_uses(template: Path) -> None:
    text = template.read_text()
    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(
        re.findall(r'^variable "(\w+)"', text, re.M)
    )
    assert "path.root}/prepare.sh" in text
    if shutil.which("terraform") is None:
        pytest.skip("terraform, which knows the form of HCL, is not installed")
    subprocess.run(
        ["terraform", "fmt", "-check", "-"], input=text, text=True, check=True, capture_output=True
    )


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_without_packer_make_says_what_to_install(cloud: str) -> None:
    if shutil.which("packer") is not None:
        pytest.skip("packer is installed here")
    done = subprocess.run(
        ["make", f"image-{cloud}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode != 0
    assert done.stderr.startswith("castor: packer is not installed: see https://")
    assert done.stdout == "", "and nothing is built first"
