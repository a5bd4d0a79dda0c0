"""Records of a start that failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from autoscaler.node.script.post_mortem import post_mortem
from tests.failures.texts import HERE, TEXTS, traceback


def test_the_last_lines_are_the_script_s_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(["loading", *TEXTS["value_error"](HERE)]) + "\n")
    instance = SimpleNamespace(name="a-0-1", disk=SimpleNamespace(log=log))
    failure = post_mortem(instance, 1, 0, exit_code=1)  # type: ignore[arg-type]
    own = traceback(HERE, "ValueError: bad shape", "step")
    assert failure.last_lines == ("loading", *own)
    assert failure.cause == "the script raised ValueError: bad shape (train.py:13, in step)"
