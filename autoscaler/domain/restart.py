"""Jobs that are resized by restarts: any command, without a training session."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls, quoted

DEFAULT_GRACE_SECONDS: Final = 30.0
DEFAULT_WAIT_SECONDS: Final = 1800.0
LONGEST_PROGRESS: Final = 200
_PLACE: Final = re.compile(r"\{(examples|step)\}")
_NUMBER: Final = r"([0-9][0-9,_]{0,30}(?:\.[0-9]{1,12})?(?:[eE][+]?[0-9]{1,2})?)"


@dataclass(frozen=True, slots=True)
class RestartSpec:
    """Restart of a job's command at each change of its instances.

    A new or changed match of the glob `checkpoint` means that the command has saved its state;
    the glob is absolute, or relative to the working directory. After SIGTERM the command has
    `grace_seconds` until SIGKILL. A change of size waits at most `wait_seconds` for the next
    match. `progress` is the text around the number of {examples}, or of the {step}, in the lines
    that the command prints; None if it prints none.
    """

    checkpoint: str
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    progress: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether the matches are in a directory that all instances share."""
        return PurePosixPath(self.checkpoint).is_absolute()


@dataclass(frozen=True, slots=True)
class ProgressPattern:
    """Expression that finds the number in a line; `unit` is ``examples`` or ``step``."""

    unit: str
    expression: re.Pattern[str]

    def number_in(self, line: str) -> float | None:
        """Return the last number that the line states; None if it states none."""
        numbers = self.expression.findall(line)
        return float(re.sub("[,_]", "", numbers[-1])) if numbers else None


def progress_pattern(text: str, field: str = "restart.progress") -> ProgressPattern:
    """Return the expression for a text such as ``step {step} loss``.

    Blanks match any number of blanks; all else matches itself.

    Raises:
        SpecError: the text does not name exactly one number, or has no words around it.
    """
    places = _PLACE.findall(text)
    around = _PLACE.split(text)[::2]
    if len(places) != 1 or len(text) > LONGEST_PROGRESS or has_controls(text):
        raise SpecError(
            f"{quoted(text)} must name one number of the lines that the command prints, like "
            f'"examples {{examples}}" or "step {{step}}"',
            field,
        )
    if not "".join(around).strip():
        raise SpecError(
            f"{quoted(text)} would match every number: add the words before it, like "
            f'"{places[0]} {text.strip()}"',
            field,
        )
    before, after = (_escaped(part) for part in around)
    return ProgressPattern(places[0], re.compile(before + _NUMBER + after))


def _escaped(text: str) -> str:
    """Return an expression for a text whose blanks match any number of blanks."""
    parts = re.split(r"(\s+)", text)
    return "".join(r"\s+" if part.isspace() else re.escape(part) for part in parts if part)
