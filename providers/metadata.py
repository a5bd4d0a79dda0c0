"""Metadata of an instance on the instance itself: its id, devices, paths and reclaim notice.

This module is all that the node agent reads of its provider. Every provider passes the metadata
in environment variables and the reclaim notice in a file.
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import NotFound

_log = logging.getLogger(__name__)

INSTANCE_VARIABLE = "CASTOR_INSTANCE"
DEVICES_VARIABLE = "CASTOR_DEVICES"
ACCELERATORS_VARIABLE = "CASTOR_ACCELERATORS"
DIRECTORY_VARIABLE = "CASTOR_INSTANCE_DIRECTORY"
CACHE_VARIABLE = "CASTOR_CACHE_DIRECTORY"
BIND_ADDRESS_VARIABLE = "CASTOR_BIND_ADDRESS"
RECLAIM_NOTICE_VARIABLE = "CASTOR_RECLAIM_NOTICE"
IDENTITY_VARIABLE = "CASTOR_IDENTITY"
CONTAINER_PARENT_VARIABLE = "CASTOR_CONTAINER_PARENT"
REGISTRIES_VARIABLE = "CASTOR_REGISTRIES"
REGISTRY_USER_VARIABLE = "CASTOR_REGISTRY_USER"
REGISTRY_PASSWORD_VARIABLE = "CASTOR_REGISTRY_PASSWORD"


@dataclass(frozen=True, slots=True)
class Registries:
    """Private registries and repositories of container images that the instance may read.

    `names` are hosts with a path, such as `HOST/team`, or without one. `password` is a command
    that, with a registry's host as last argument, prints a password of `user` for it. The agent,
    as root, can run this command and jobs can't.
    """

    names: tuple[str, ...]
    user: str
    password: tuple[str, ...]

    def host(self, image: str) -> str | None:
        """Return the host of the registry that `image` is in; None if no name covers it."""
        for name in self.names:
            rest = image.removeprefix(name)
            ends = ("/", ":", "@") if "/" in name else ("/",)  # after a host, : begins a port
            if rest == "" or (rest != image and rest.startswith(ends)):
                return image.partition("/")[0]
        return None

    def environment(self) -> dict[str, str]:
        """Return the environment variables that `read_metadata` reads."""
        return {
            REGISTRIES_VARIABLE: " ".join(self.names),
            REGISTRY_USER_VARIABLE: self.user,
            REGISTRY_PASSWORD_VARIABLE: shlex.join(self.password),
        }


NO_REGISTRIES: Final = Registries((), "", ())


@dataclass(frozen=True, slots=True)
class InstanceMetadata:
    """Metadata of the instance that runs this process.

    `devices` are device indices; each device runs one rank. `accelerators` is the number of GPUs
    that the driver lists; None where the provider does not count them. `directory` lies on the
    instance's own disk, which is deleted with the instance. `cache_directory` may be shared with
    other instances of the host and outlive this one. Other instances reach this one at
    `bind_address`.
    `reclaim_notice_file` exists once the instance is about to be reclaimed. `identity_file` holds
    the identity proof signed by the cloud; None where the cloud signs no proofs.
    Containers of jobs run in the control group `container_parent`; None leaves it to the engine.
    """

    instance_id: str
    devices: tuple[int, ...]
    directory: Path
    cache_directory: Path
    bind_address: str
    reclaim_notice_file: Path
    identity_file: Path | None = None
    accelerators: int | None = None
    container_parent: str | None = None
    registries: Registries = NO_REGISTRIES

    def environment(self) -> dict[str, str]:
        """Return the environment variables that `read_metadata` reads."""
        identity, accelerators = self.identity_file, self.accelerators
        parent = self.container_parent
        return {
            INSTANCE_VARIABLE: self.instance_id,
            DEVICES_VARIABLE: ",".join(str(device) for device in self.devices),
            DIRECTORY_VARIABLE: str(self.directory),
            CACHE_VARIABLE: str(self.cache_directory),
            BIND_ADDRESS_VARIABLE: self.bind_address,
            RECLAIM_NOTICE_VARIABLE: str(self.reclaim_notice_file),
            **({} if identity is None else {IDENTITY_VARIABLE: str(identity)}),
            **({} if accelerators is None else {ACCELERATORS_VARIABLE: str(accelerators)}),
            **({} if parent is None else {CONTAINER_PARENT_VARIABLE: parent}),
            **(self.registries.environment() if self.registries.names else {}),
        }


def read_metadata(environ: Mapping[str, str]) -> InstanceMetadata:
    """Return the metadata of the instance that runs this process.

    Raises:
        NotFound: a variable is missing or invalid; no provider started this process.
    """
    identity = environ.get(IDENTITY_VARIABLE)
    try:
        return InstanceMetadata(
            instance_id=environ[INSTANCE_VARIABLE],
            devices=tuple(int(device) for device in environ[DEVICES_VARIABLE].split(",")),
            directory=Path(environ[DIRECTORY_VARIABLE]),
            cache_directory=Path(environ[CACHE_VARIABLE]),
            bind_address=environ[BIND_ADDRESS_VARIABLE],
            reclaim_notice_file=Path(environ[RECLAIM_NOTICE_VARIABLE]),
            identity_file=None if identity is None else Path(identity),
            accelerators=_accelerators(environ),
            container_parent=environ.get(CONTAINER_PARENT_VARIABLE),
            registries=_registries(environ),
        )
    except KeyError as error:
        raise NotFound(
            f"{error.args[0]} is not set: this process runs on no instance of a provider; a "
            "provider must start the node agent"
        ) from error
    except ValueError as error:
        raise NotFound(
            f"{DEVICES_VARIABLE}={environ[DEVICES_VARIABLE]}: expected device numbers separated "
            "by commas"
        ) from error


def _accelerators(environ: Mapping[str, str]) -> int | None:
    text = environ.get(ACCELERATORS_VARIABLE)
    if text is None:
        return None
    if not text.isdecimal():
        raise NotFound(f"{ACCELERATORS_VARIABLE}={text}: expected the number of GPUs")
    return int(text)


def _registries(environ: Mapping[str, str]) -> Registries:
    names = tuple(environ.get(REGISTRIES_VARIABLE, "").split())
    if not names:
        return NO_REGISTRIES
    password = shlex.split(environ[REGISTRY_PASSWORD_VARIABLE])
    return Registries(names, environ[REGISTRY_USER_VARIABLE], tuple(password))


def identity_proof(metadata: InstanceMetadata) -> str | None:
    """Return the identity proof signed by the cloud; None where the cloud signs no proofs.

    Raises:
        NotFound: `identity_file` can't be read.
    """
    if metadata.identity_file is None:
        return None
    try:
        return metadata.identity_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "the file is not text"
        raise NotFound(
            f"{IDENTITY_VARIABLE}={metadata.identity_file}: {reason}: the start script must "
            "write this file before it starts the agent"
        ) from error


def reclaim_notice(metadata: InstanceMetadata) -> float | None:
    """Return when the instance will be reclaimed, in epoch seconds; None without a notice.

    A notice that can't be read, for example while it is being written, counts as absent.
    """
    try:
        text = metadata.reclaim_notice_file.read_text()
        if math.isfinite(reclaim_seconds := float(text)):
            return reclaim_seconds
        reason = f"{text!r} is not a time in seconds"
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = str(error)
    _warn_unreadable_once(metadata.reclaim_notice_file, reason)
    return None


@cache
def _warn_unreadable_once(path: Path, reason: str) -> None:
    """Log a warning once for each path and reason; callers poll many times a second."""
    _log.warning("%s: no readable reclaim notice yet: %s", path, reason)
