from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
assert os.environ["TORCH_NCCL_ENABLE_MONITORING"] == "0"
print("best", os.environ["RANK"], flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("ranks", "exit_code", "printed"),
    [(1, 0, ["best 0"]), (2, 0, ["[rank 0] best 0", "[rank 1] best 1"]), (1, 3, ["best 0"])],
)
def test_lines_of_several_ranks_begin_with_the_rank_and_no_file_stays(
    tmp_path: Path, ranks: int, exit_code: int, printed: list[str]
) -> None:
    script, home, temporary = tmp_path / "script.py", tmp_path / "home", tmp_path / "tmp"
    script.write_text(SCRIPT)
    home.mkdir()
    temporary.mkdir()
    launched = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "autoscaler.training.launch", str(ranks)),
            *(sys.executable, str(script), str(exit_code)),
        ],
        env=os.environ | {"HOME": str(home), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
    )
    assert (launched.returncode == 0) == (exit_code == 0)
    assert sorted(launched.stdout.splitlines()) == printed
    assert list(home.iterdir()) == []
    assert list(temporary.glob("torchelastic_*")) == []
