"""What lets an instance keep its job's files in a cloud's storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LOG_PART: Final = re.compile("[0-9]{15}")

CREDENTIAL_KEY: Final = "credential"
"""What a grant's credential is called where a grant is JSON."""


@dataclass(frozen=True, slots=True)
class StorageGrant:
    """Leave to read and write what lies under `place`, such as ``s3://bucket/jobs/digits``.

    `options` say how the storage is reached, such as its region. `credential` holds secret values:
    they are never stored with the job or logged, and are good until `expires_seconds`, or for
    ever where that is None. `bundle` is where the job's packed files may be read, if there are
    some.
    """

    place: str
    options: Mapping[str, str] = field(default_factory=dict)
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)
    expires_seconds: float | None = None
    bundle: str | None = None


def log_folder(job: str, instance: str | None = None) -> str:
    """Where below a place the logs of a job are, or those of one of its instances."""
    return f"logs/{job}" if instance is None else f"logs/{job}/{instance}"


def log_part_name(offset: int) -> str:
    """What the part of a log is called that begins at this offset: in the order of offsets."""
    return f"{offset:015d}"


def is_log_part(name: str) -> bool:
    """Return whether `log_part_name` could have made a name."""
    return _LOG_PART.fullmatch(name) is not None


def output_folder(instance: str | None = None) -> str:
    """Return the folder below a place that has a job's outputs, or those of one instance."""
    return "outputs" if instance is None else f"outputs/{instance}"
