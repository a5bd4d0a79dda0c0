"""Storage grants: access of an instance to its job's files in a cloud's storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LOG_PART: Final = re.compile("[0-9]{15}")

CREDENTIAL_KEY: Final = "credential"
"""Key of a grant's credential in JSON."""


@dataclass(frozen=True, slots=True)
class StorageGrant:
    """Permission to read and write below `place`, such as ``s3://bucket/jobs/digits``.

    `options` configure access to the storage, such as its region. `credential` holds secret
    values, which are never stored with the job or logged. They are valid until `expires_seconds`;
    None: they do not expire. `bundle` is the location of the job's packed files, if there are any.
    """

    place: str
    options: Mapping[str, str] = field(default_factory=dict)
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)
    expires_seconds: float | None = None
    bundle: str | None = None


def log_folder(job: str, instance: str | None = None) -> str:
    """Return the folder of a job's logs below a place, or of one instance's logs."""
    return f"logs/{job}" if instance is None else f"logs/{job}/{instance}"


def log_part_name(offset: int) -> str:
    """Return the name of the log part that begins at a byte offset. Names sort by offset."""
    return f"{offset:015d}"


def is_log_part(name: str) -> bool:
    """Return whether a name has the form of `log_part_name`."""
    return _LOG_PART.fullmatch(name) is not None


def output_folder(instance: str | None = None) -> str:
    """Return the folder of a job's outputs below a place, or of one instance's outputs."""
    return "outputs" if instance is None else f"outputs/{instance}"
