"""Folder of the published data that benchmarks read and the repository does not contain."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder(holds: str) -> Path:
    """Return the folder that CASTOR_DATA names.

    Args:
        holds: names of the sub-folders needed, for the message.

    Raises:
        SystemExit: CASTOR_DATA is not set.
    """
    folder = os.environ.get("CASTOR_DATA")
    if folder is None:
        sys.exit(f"CASTOR_DATA is not set: it must name the folder that holds {holds}")
    return Path(folder)
