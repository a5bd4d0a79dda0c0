"""Names of checkpoints and of the files in a checkpoint."""

from __future__ import annotations

from typing import Final

MANIFEST: Final = "manifest.json"
RECORD: Final = "castor-job.json"
"""Name of the file that records which job's checkpoints a directory holds."""
_STEP: Final = "step-"


def name_of(step: int) -> str:
    """Return the name of a step's checkpoint. Names sort in the order of steps."""
    return f"{_STEP}{step:012d}"


def step_of(name: str) -> int | None:
    """Return the step of the checkpoint of this name; None if the name is not a checkpoint's."""
    digits = name.removeprefix(_STEP)
    return int(digits) if name.startswith(_STEP) and digits.isdigit() else None
