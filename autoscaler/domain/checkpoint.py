"""Names of checkpoints and of the files in one."""

from __future__ import annotations

from typing import Final

MANIFEST: Final = "manifest.json"
RECORD: Final = "castor-job.json"
"""Name of the record of whose checkpoints are in a place."""
_STEP: Final = "step-"


def name_of(step: int) -> str:
    """Return the name of a step's checkpoint. Names are in the order of steps."""
    return f"{_STEP}{step:012d}"


def step_of(name: str) -> int | None:
    """Return the step whose checkpoint is called so; None if that is no name of one."""
    digits = name.removeprefix(_STEP)
    return int(digits) if name.startswith(_STEP) and digits.isdigit() else None
