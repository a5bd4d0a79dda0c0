"""Container engine, docker or podman, for jobs that name an image.

Tested only with a fake engine. The image must contain `python`, torch and castor-autoscaler.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.errors import NotFound

_ENGINES = ("docker", "podman")


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

    def fetch_script(self, image: str) -> str:
        """Return a shell script that pulls `image` unless the engine has it."""
        inspect = shlex.join([self._program, "image", "inspect", image])
        return f"{inspect} >/dev/null 2>&1 || {shlex.join([self._program, 'pull', image])}"

    def set_up_script(self, container: Container, script: str, image: str) -> str:
        """Return a shell script that runs `script` in a container and saves it as `image`.

        An image keeps the variables of its container; therefore the secrets are emptied.
        """
        options = container.options()
        run = [self._program, "run", *options, container.image, "sh", "-c", script]
        emptied = [f"--change=ENV {name}=" for name in container.secrets]
        commit = [self._program, "commit", *emptied, container.name, image]
        fetch = self.fetch_script(container.image)
        return f"{{ {fetch}; }} && {shlex.join(run)} && {shlex.join(commit)}"


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
