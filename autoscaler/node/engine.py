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

    Of `variables` the values come from the engine's own environment, so that no command line
    shows them. `devices` are the numbers of CPU cores, or of accelerators if `is_cpu` is false.
    """

    name: str
    image: str
    directory: Path
    mounts: Mapping[Path, bool]
    variables: Sequence[str]
    devices: Sequence[int]
    is_cpu: bool
    user: int | None

    def options(self) -> list[str]:
        """The engine's options for it."""
        devices = ",".join(str(device) for device in self.devices)
        chosen = [f"--cpuset-cpus={devices}"] if self.is_cpu else ["--gpus", f'"device={devices}"']
        user = [] if self.user is None else [f"--user={self.user}:{self.user}"]
        mounts = [
            f"--volume={path}:{path}" + (":ro" if read_only else "")
            for path, read_only in self.mounts.items()
        ]
        variables = [f"--env={name}" for name in self.variables]
        return [
            f"--name={self.name}",
            *("--network=host", "--ipc=host", "--init"),
            f"--workdir={self.directory}",
            *chosen,
            *user,
            *mounts,
            *variables,
        ]


class Engine:
    """Makes the command lines of an engine; others run them."""

    def __init__(self, program: str) -> None:
        self._program = program

    def run(self, container: Container, command: Sequence[str]) -> list[str]:
        """Run `command` in a new container."""
        options = container.options()
        return [self._program, "run", "--rm", *options, container.image, *command]

    def fetch_script(self, image: str) -> str:
        """A shell script that has `image` here, from its registry if need be."""
        return f"{self._there(image)} || {shlex.join([self._program, 'pull', image])}"

    def set_up_script(self, container: Container, script: str, image: str) -> str:
        """A shell script that makes `image` of what `script` does in the container, once.

        An image keeps the variables of the container it is made of: they are emptied, for there
        are secrets among them.
        """
        options = container.options()
        run = [self._program, "run", *options, container.image, "sh", "-c", script]
        emptied = [f"--change=ENV {name}=" for name in container.variables]
        keep = [self._program, "commit", *emptied, container.name, image]
        fetch = self.fetch_script(container.image)
        make = f"{{ {fetch}; }} && {shlex.join(run)} && {shlex.join(keep)}"
        return f"{self._there(image)} || {{ {make}; }}"

    def remove(self, name: str) -> list[str]:
        """Remove a container, running or not."""
        return [self._program, "rm", "--force", name]

    def _there(self, image: str) -> str:
        return f"{shlex.join([self._program, 'image', 'inspect', image])} >/dev/null 2>&1"


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
