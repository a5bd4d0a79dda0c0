"""What an instance can learn of itself: who it is, and whether it is about to be taken back.

The node agent reads this and nothing else of its provider. Today every provider tells it through
environment variables and a file.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoscaler.domain.errors import NotFound

_log = logging.getLogger(__name__)

INSTANCE_VARIABLE = "CASTOR_INSTANCE"
DEVICES_VARIABLE = "CASTOR_DEVICES"
DIRECTORY_VARIABLE = "CASTOR_INSTANCE_DIRECTORY"
CACHE_VARIABLE = "CASTOR_CACHE_DIRECTORY"
BIND_ADDRESS_VARIABLE = "CASTOR_BIND_ADDRESS"
RECLAIM_NOTICE_VARIABLE = "CASTOR_RECLAIM_NOTICE"
IDENTITY_VARIABLE = "CASTOR_IDENTITY"


@dataclass(frozen=True, slots=True)
class InstanceMetadata:
    """One instance, as it sees itself.

    `devices` are the numbers of its devices, one rank each; `directory` is its own disk, which
    goes when it goes; `cache_directory` may be shared with other instances of the host and stay
    for later ones; `bind_address` is where other instances reach it; `reclaim_notice_file`
    appears when the instance is about to be taken back. `identity_file` holds its cloud's signed
    word of which instance it is; None where the cloud gives it none.
    """

    instance_id: str
    devices: tuple[int, ...]
    directory: Path
    cache_directory: Path
    bind_address: str
    reclaim_notice_file: Path
    identity_file: Path | None = None

    def environment(self) -> dict[str, str]:
        """The variables from which `read_metadata` makes this again."""
        identity = self.identity_file
        return {
            INSTANCE_VARIABLE: self.instance_id,
            DEVICES_VARIABLE: ",".join(str(device) for device in self.devices),
            DIRECTORY_VARIABLE: str(self.directory),
            CACHE_VARIABLE: str(self.cache_directory),
            BIND_ADDRESS_VARIABLE: self.bind_address,
            RECLAIM_NOTICE_VARIABLE: str(self.reclaim_notice_file),
            **({} if identity is None else {IDENTITY_VARIABLE: str(identity)}),
        }


def read_metadata(environ: Mapping[str, str]) -> InstanceMetadata:
    """What `environ` tells of the instance this process runs on.

    Raises:
        NotFound: this process was not started by an instance.
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
        )
    except KeyError as error:
        raise NotFound(
            f"{error.args[0]} is not set: this is no instance; a provider starts the node agent"
        ) from error
    except ValueError as error:
        raise NotFound(
            f"{DEVICES_VARIABLE}={environ[DEVICES_VARIABLE]}: expected numbers with commas between"
        ) from error


def identity_proof(metadata: InstanceMetadata) -> str | None:
    """The cloud's signed word of which instance this is; None where the cloud gives it none.

    Raises:
        NotFound: it is not where this instance was told.
    """
    if metadata.identity_file is None:
        return None
    try:
        return metadata.identity_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise NotFound(
            f"{IDENTITY_VARIABLE}={metadata.identity_file}: {reason}: what starts the agent has "
            "to write it before"
        ) from error


def reclaim_notice(metadata: InstanceMetadata) -> float | None:
    """When this instance will be taken back, in seconds since the epoch; None if nobody said.

    A notice that can't be read, since it is being written, is not there yet.
    """
    try:
        text = metadata.reclaim_notice_file.read_text()
        if math.isfinite(reclaim_seconds := float(text)):
            return reclaim_seconds
        reason = f"{text!r} is no time"
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = str(error)
    _tell_unreadable(metadata.reclaim_notice_file, reason)
    return None


@cache
def _tell_unreadable(path: Path, reason: str) -> None:
    """Say it, and once only: notices are looked for many times a second."""
    _log.warning("%s: no readable reclaim notice yet: %s", path, reason)
