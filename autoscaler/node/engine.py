"""A container engine, docker or podman, for jobs that name an image.

Tried with a stand-in for an engine only, never with a real one. The image has to hold what the
job needs: Python as `python`, torch, castor-autoscaler.
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
    """One container. What is mounted has the same path in it as outside.

    `mounts` (path -> read-only) are files and directories of the instance. The values of the
    `secrets` come from the engine's own environment, so that no command line shows them.
    `cores` and `accelerators` are numbers with commas between, None for all and none; `user` is
    the image's own where it is None.
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

    def options(self) -> list[str]:
        """The engine's options for it."""
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
            f"--workdir={self.directory}",
            *mounts,
            *(f"--env={name}={value}" for name, value in self.variables.items()),
            *(f"--env={name}" for name in self.secrets),
        ]


class Engine:
    """Makes the command lines of an engine; others run them."""

    def __init__(self, program: str) -> None:
        self._program = program

    def run(self, container: Container, command: Sequence[str]) -> list[str]:
        """Run `command` in a new container."""
        options = container.options()
        return [self._program, "run", "--rm", *options, container.image, *command]

    def remove(self, name: str) -> list[str]:
        """Remove a container, running or not."""
        return [self._program, "rm", "--force", name]

    def fetch_script(self, image: str) -> str:
        """A shell script that has `image` here, from its registry if need be."""
        look = shlex.join([self._program, "image", "inspect", image])
        return f"{look} >/dev/null 2>&1 || {shlex.join([self._program, 'pull', image])}"

    def set_up_script(self, container: Container, script: str, image: str) -> str:
        """A shell script that keeps as `image` what the shell script `script` makes of a
        container.

        An image keeps the variables of the container it is made of: the secrets are emptied.
        """
        options = container.options()
        run = [self._program, "run", *options, container.image, "sh", "-c", script]
        emptied = [f"--change=ENV {name}=" for name in container.secrets]
        keep = [self._program, "commit", *emptied, container.name, image]
        fetch = self.fetch_script(container.image)
        return f"{{ {fetch}; }} && {shlex.join(run)} && {shlex.join(keep)}"


def find_engine(path: str | None) -> Engine:
    """The engine on `path`.

    Raises:
        NotFound: there is none.
    """
    for name in _ENGINES:
        if (program := shutil.which(name, path=path)) is not None:
            return Engine(program)
    raise NotFound(
        "the job names an image and there is neither docker nor podman here: install one on the "
        "instances, or leave image out and prepare in setup"
    )
