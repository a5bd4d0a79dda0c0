"""Secrets of jobs, read on the controller's host from locations that its operator allows."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import SecretReference
from autoscaler.domain.text import quoted

MAXIMUM_SECRET_BYTES: Final = 64 * 1024
_LONGEST_PATH: Final = 1_000


@dataclass(frozen=True, slots=True)
class AllowedSecrets:
    """Directories and environment variables that jobs may name as secrets.

    No file below `state`, the controller's state directory, is ever a secret.
    """

    state: Path
    directories: Sequence[Path] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def values(self, references: Mapping[str, SecretReference]) -> dict[str, str]:
        """Return the secrets of a job's references by name.

        Raises:
            SpecError: a secret is not allowed or can't be read. The message names the secret, and
                never holds a value.
        """
        return {name: self._value(name, reference) for name, reference in references.items()}

    def _value(self, name: str, reference: SecretReference) -> str:
        if reference.variable is not None:
            return self._variable(reference.variable, f"secrets.{name}.variable")
        return self._file(reference.file or "", f"secrets.{name}.file")

    def _variable(self, variable: str, key: str) -> str:
        value = self.variables.get(variable)
        if value is None:
            raise SpecError(
                f"the controller gives jobs no variable {quoted(variable)}: set it where "
                f"`castor serve` runs, and name it in --secret-variables",
                key,
            )
        return value

    def _file(self, file: str, key: str) -> str:
        path = self._allowed(file)
        if path is None:
            names = ", ".join(str(directory) for directory in self.directories)
            place = names or "none: start `castor serve` with --secrets DIRECTORY"
            raise SpecError(
                f"{quoted(file, _LONGEST_PATH)} is not in a directory that holds secrets of jobs "
                f"({place})",
                key,
            )
        try:
            return _read(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SpecError(
                f"the controller can't read {quoted(file, _LONGEST_PATH)}: {reason}", key
            ) from None

    def _allowed(self, file: str) -> Path | None:
        """Return the real path of a file; None if it is in no allowed directory.

        Links are resolved first. The result does not depend on whether a file elsewhere exists.
        """
        state = self.state.resolve()
        for directory in self.directories:
            try:
                path = (directory / Path(file).expanduser()).resolve()
            except (OSError, RuntimeError, ValueError):  # links in a circle, no such user, NUL
                continue
            if path.is_relative_to(directory.resolve()) and not path.is_relative_to(state):
                return path
        return None


def _read(path: Path) -> str:
    """Return the text of a small regular file, without trailing line breaks.

    Raises:
        OSError, ValueError: the file can't be read, is of another kind, too large or no text.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        content = opened.read(MAXIMUM_SECRET_BYTES + 1)
    if len(content) > MAXIMUM_SECRET_BYTES:
        raise ValueError(f"it is larger than {MAXIMUM_SECRET_BYTES:,} bytes")
    try:
        return content.decode().rstrip("\n")
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
