"""JSON output of commands, and the exit status of a failed job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from autoscaler.domain.errors import SpecError

JOB_FAILED: Final = 4


def fail_with(job: Any) -> None:
    """Exit with status 4 if the job has failed; otherwise do nothing."""
    if job.phase == "failed":
        raise SystemExit(JOB_FAILED)


def print_json(kind: Any, value: Any) -> None:
    """Print a value as JSON, encoded as the API message type `kind`."""
    from autoscaler.wire.codec import encode

    print(json.dumps(json.loads(encode(kind, value)), indent=2))


def write_json(document: object, path: Path) -> None:
    """Write a document to the file of option `--json`.

    Raises:
        SpecError: the file can't be written.
    """
    try:
        path.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise SpecError(f"{path} can't be written: {error.strerror}", "--json") from None
