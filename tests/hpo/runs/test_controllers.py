"""The state of a study's own controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "in_memory.py"


@pytest.mark.timeout(120)
def test_a_study_in_memory_leaves_no_state(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "CASTOR_STATE": str(tmp_path)}
    environment.pop("CASTOR_URL", None)
    subprocess.run([sys.executable, str(SCRIPT)], env=environment, check=True)
    assert list((tmp_path / "studies").iterdir()) == []
    assert set(tmp_path.iterdir()) == {tmp_path / "studies"}
