"""Orders that run a job's set-up and script on an instance."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autoscaler.domain.gang import GangPlace
from autoscaler.node.instance import Instance
from autoscaler.node.script.container_engine import Container, ContainerEngine, find_engine
from autoscaler.node.script.environment import (
    job_environment,
    outside_image,
    packages,
    secret_environment,
)
from autoscaler.node.script.setups import SetupEntry, commands_script, venv_script
from autoscaler.node.shims.shim import SESSION_GRACE_SECONDS, ShimOrder
from autoscaler.node.state import Prepared
from autoscaler.wire.messages import Assignment
from providers.metadata import DEVICES_VARIABLE

FABRIC: Final = Path("/dev/infiniband")
"""Devices of EFA and InfiniBand."""


class Orders:
    """Factory of the orders of one job. `prepared` states the interpreter, user and image."""

    def __init__(self, instance: Instance, assignment: Assignment, prepared: Prepared) -> None:
        self._instance = instance
        self._assignment = assignment
        self._prepared = prepared

    def training(self, devices_used: int, place: GangPlace | None = None) -> ShimOrder:
        """Return the order for the job's script: one rank for each used device, or one for all.

        With a `place`, the ranks of all instances of a gang start together.

        Raises:
            NotFound: the job names an image, and no container engine is installed.
        """
        work, script = self._instance.disk.work, self._assignment.spec.command
        has_ranks = place is not None or self._has_ranks(devices_used)
        launch = [*self._launcher(devices_used, place), *script] if has_ranks else list(script)
        if self._prepared.image is not None:
            engine = self._engine()
            container = self._training_container(self._prepared.image, devices_used)
            return self._engine_order(engine.run(container, launch), engine, container)
        environment = self._environment(devices_used)
        return ShimOrder(
            # The shim reports a missing program more briefly than the launcher.
            command=launch if _exists(script[0], work, environment["PATH"]) else script,
            directory=str(work),
            environment=environment,
            secrets=tuple(self._assignment.secrets.values()),
            grant_file=self._grant_file,
            user=self._prepared.user,
            grace_seconds=self._grace_seconds,
        )

    def set_up(self, entry: SetupEntry) -> ShimOrder:
        """Return the order that makes the entry's virtual environment or image by set-up.

        Raises:
            NotFound: the job names an image, and no container engine is installed.
        """
        commands = commands_script(self._assignment.spec.setup)
        base, result = self._assignment.spec.image, self._prepared.image
        if base is not None and result is not None:
            engine = self._engine()
            container = self._setup_container(base, entry.tree)
            script = engine.set_up_script(container, commands, result)
            order = self._engine_order(("/bin/sh", "-c", script), engine, container)
            return replace(order, ends_with_agent=True)
        return ShimOrder(
            command=("/bin/sh", "-c", f"{venv_script(entry, packages())}\n{commands}"),
            directory=str(entry.tree),
            environment=self._environment(len(self._instance.metadata.devices)),
            secrets=tuple(self._assignment.secrets.values()),
            user=self._prepared.user,
            ends_with_agent=True,
        )

    def fetch_image(self, image: str, environment: Mapping[str, str]) -> ShimOrder:
        """Return the order that fetches an image, with these variables for the engine.

        Raises:
            NotFound: no container engine is installed.
        """
        script = self._engine().fetch_script(image, self._instance.metadata.registries)
        return ShimOrder(
            command=("/bin/sh", "-c", script),
            directory=str(self._instance.disk.directory),
            environment={**self._instance.environment, **environment},
            ends_with_agent=True,
        )

    def _launcher(self, devices_used: int, place: GangPlace | None) -> list[str]:
        """Return the command of the launcher, without the script."""
        launcher = [self._prepared.python, *self._instance.settings.launcher]
        if place is None:
            return [*launcher, str(devices_used)]
        assert place.address is not None, "the agent waits for the address"
        node = [str(place.index), str(place.instances), place.address, place.run_id]
        address = self._instance.metadata.bind_address
        return [*launcher, "--gang", *node, address, str(devices_used)]

    def _has_ranks(self, devices_used: int) -> bool:
        """Return whether torchrun starts the script.

        Trials of one process skip the launcher, because they last only seconds. So does a script
        of one process without PyTorch.
        """
        spec = self._assignment.spec
        if devices_used == 1 and not self._has_torch:
            return False
        return spec.study is None or (spec.distributed and devices_used > 1)

    @property
    def _has_torch(self) -> bool:
        """Whether PyTorch is installed; assumed if set-up or an image may have installed it."""
        is_agent_python = self._prepared.image is None and self._prepared.python == sys.executable
        return not is_agent_python or find_spec("torch") is not None

    def _environment(self, devices_used: int) -> dict[str, str]:
        variables = job_environment(self._instance, self._assignment, devices_used)
        secrets = secret_environment(self._assignment)
        python = self._prepared.python
        return outside_image(self._instance, {**variables, **secrets}, python)

    def _engine(self) -> ContainerEngine:
        return find_engine(self._instance.environment.get("PATH"))

    def _training_container(self, image: str, devices_used: int) -> Container:
        disk, assignment = self._instance.disk, self._assignment
        sources = {Path(mount.source): mount.read_only for mount in assignment.spec.data}
        if disk.grant.exists():
            sources[disk.grant.parent] = True
        writable = (
            disk.work,
            disk.home,
            disk.socket().parent,
            Path(assignment.checkpoint_directory),
        )
        variables = job_environment(self._instance, assignment, devices_used)
        devices = variables[DEVICES_VARIABLE]
        return Container(
            name=self._container_name,
            image=image,
            directory=disk.work,
            mounts={**sources, **dict.fromkeys(writable, False)},
            variables=variables,
            secrets=tuple(secret_environment(assignment)),
            cores=devices if assignment.offer.is_cpu else None,
            accelerators=None if assignment.offer.is_cpu else devices,
            user=self._prepared.user,
            parent=self._instance.metadata.container_parent,
            fabric=FABRIC if FABRIC.is_dir() else None,
        )

    def _setup_container(self, image: str, tree: Path) -> Container:
        """Return the container for set-up: with the image's user, and only the job's files."""
        return Container(
            name=self._container_name,
            image=image,
            directory=tree,
            mounts={tree: False},
            variables=self._assignment.spec.environment,
            secrets=tuple(secret_environment(self._assignment)),
            parent=self._instance.metadata.container_parent,
        )

    @property
    def _grant_file(self) -> str | None:
        grant = self._instance.disk.grant
        return str(grant) if grant.exists() else None

    @property
    def _grace_seconds(self) -> float:
        """Seconds from SIGTERM to SIGKILL; a session has left before."""
        restart = self._assignment.spec.restart
        return SESSION_GRACE_SECONDS if restart is None else restart.grace_seconds

    @property
    def _container_name(self) -> str:
        return f"castor-{self._instance.metadata.instance_id}"

    def _engine_order(
        self, command: Sequence[str], engine: ContainerEngine, container: Container
    ) -> ShimOrder:
        """Return an order that runs the engine, as the agent's user, and removes the container."""
        return ShimOrder(
            command=command,
            directory=str(self._instance.disk.directory),
            environment={**self._instance.environment, **secret_environment(self._assignment)},
            secrets=tuple(self._assignment.secrets.values()),
            grant_file=self._grant_file,
            clear=engine.remove(container.name),
            grace_seconds=self._grace_seconds,
        )


def _exists(program: str, work: Path, path: str) -> bool:
    if "/" in program:
        return (work / program).exists()
    return shutil.which(program, path=path) is not None
