"""Where the published data lies that benchmarks read and the project does not hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder(holds: str) -> Path:
    """The folder that CASTOR_DATA names, which `holds` these; where it is not set, the end."""
    folder = os.environ.get("CASTOR_DATA")
    if folder is None:
        sys.exit(f"CASTOR_DATA is not set: it must name the folder that holds {holds}")
    return Path(folder)
