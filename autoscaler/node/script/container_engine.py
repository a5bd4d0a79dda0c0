"""Container engine, docker or podman, for jobs that name an image.

Tested only with a fake engine. The image must contain `python`, torch and castor-autoscaler.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.errors import NotFound
from providers.metadata import Registries

_ENGINES = ("docker", "podman")
_REFUSED = re.compile(r"denied|authori[sz]ed|authenticat|credential|forbidden|\b40[13]\b", re.I)


@dataclass(frozen=True, slots=True)
class Container:
    """One container. Mounted files have the same path inside as outside.

    `mounts` maps paths of the instance to whether they are read-only. `secrets` are names of
    variables; the engine's own environment holds their values, so that no command line shows
    them. `cores` and `accelerators` are comma-separated numbers; None means all cores, and no
    accelerators. `user` None is the user of the image. `parent` None leaves the control group
    to the engine. `fabric` is the directory of the devices of a fast network; None for none.
    """

    name: str
    image: str
    directory: Path
    mounts: Mapping[Path, bool]
    variables: Mapping[str, str]
    secrets: Sequence[str]
    cores: str | None = None
    accelerators: str | None = None
    user: int | None = None
    parent: str | None = None
    fabric: Path | None = None

    def options(self) -> list[str]:
        """Return the engine's options for the container."""
        mounts = (
            f"--volume={path}:{path}:{'ro' if read_only else 'rw'}"
            for path, read_only in self.mounts.items()
        )
        return [
            f"--name={self.name}",
            *("--network=host", "--ipc=host", "--init"),
            *([] if self.cores is None else [f"--cpuset-cpus={self.cores}"]),
            *([] if self.accelerators is None else [f'--gpus="device={self.accelerators}"']),
            *([] if self.user is None else [f"--user={self.user}:{self.user}"]),
            *([] if self.parent is None else [f"--cgroup-parent={self.parent}"]),
            *([] if self.fabric is None else [f"--device={self.fabric}", "--ulimit=memlock=-1"]),
            f"--workdir={self.directory}",
            *mounts,
            *(f"--env={name}={value}" for name, value in self.variables.items()),
            *(f"--env={name}" for name in self.secrets),
        ]


class ContainerEngine:
    """Builder of command lines for a container engine."""

    def __init__(self, program: str) -> None:
        self._program = program

    def run(self, container: Container, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in a new container."""
        options = container.options()
        return [self._program, "run", "--rm", *options, container.image, *command]

    def remove(self, name: str) -> list[str]:
        """Return the command line that removes a container, running or not."""
        return [self._program, "rm", "--force", name]

    def fetch_script(self, image: str, registries: Registries) -> str:
        """Return a shell script that pulls `image` unless the engine has it.

        If the image is in one of `registries`, the script logs in first. The password is in no
        command line, and no file but that of `login_environment`.
        """
        inspect = shlex.join([self._program, "image", "inspect", image])
        script = [f"{inspect} >/dev/null 2>&1 && exit"]
        if (host := registries.host(image)) is not None:
            user = f"--username={registries.user}"
            login = shlex.join([self._program, "login", user, "--password-stdin", host])
            script += [
                f"password=$({shlex.join([*registries.password, host])}) || exit",
                f'said=$(printf %s "$password" | {login} 2>&1) || '
                """{ printf '%s\\n' "$said" >&2; exit 1; }""",
            ]
        return "\n".join((*script, f"exec {shlex.join([self._program, 'pull', image])}"))

    def set_up_script(self, container: Container, script: str, image: str) -> str:
        """Return a shell script that runs `script` in a container and saves it as `image`.

        The engine must have the container's own image. An image keeps the variables of its
        container; therefore the secrets are emptied.
        """
        options = container.options()
        run = [self._program, "run", *options, container.image, "sh", "-c", script]
        emptied = [f"--change=ENV {name}=" for name in container.secrets]
        commit = [self._program, "commit", *emptied, container.name, image]
        return f"{shlex.join(run)} && {shlex.join(commit)}"


@contextmanager
def login_environment(directory: Path) -> Iterator[dict[str, str]]:
    """Yield variables with which engines keep log-ins in `directory`.

    Only the agent's user can read the directory. It exists only in this context.
    """
    directory.mkdir(mode=0o700)
    file = directory / "config.json"
    file.write_text("{}")
    try:
        yield {"DOCKER_CONFIG": str(directory), "REGISTRY_AUTH_FILE": str(file)}
    finally:
        shutil.rmtree(directory)


def refusal(image: str, host: str | None, reason: str) -> str | None:
    """Return the cause of a failed pull, with the way out; None if `reason` is no refusal.

    `host` is the registry that the instance logged in to; None if it did not. `reason` is the last
    line of the engine.
    """
    if not _REFUSED.search(reason):
        return None
    way_out = (
        "it is not public, and no entry of the deployment's registries covers it: add its "
        "repository to registries of the Terraform module (docs/how-to.md), or use a public image"
        if host is None
        else f"the permissions of this instance do not suffice at {host}: check registries of the "
        "Terraform module, and the policy of the repository (docs/how-to.md)"
    )
    return f"image {image}: {reason}: {way_out}"


def find_engine(path: str | None) -> ContainerEngine:
    """Return the container engine on the search path `path`.

    Raises:
        NotFound: none is installed.
    """
    for name in _ENGINES:
        if (program := shutil.which(name, path=path)) is not None:
            return ContainerEngine(program)
    raise NotFound(
        "the job names an image and there is neither docker nor podman here: install one on the "
        "instances, or use setup instead of image"
    )
