from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer import testing

from tests.builders.waiting import wait_until
from tests.nursery import Order, nursery

APP = "autoscaler.cli.app"
CASTOR = (sys.executable, "-P", "-m", APP)
# Modules that the commands import.
_IMPORTED = (
    *("autoscaler.main", "autoscaler.spec.job_file", "httpcore", APP),
    *(
        f"autoscaler.cli.{room}"
        for room in ("live", "serve.settings", "submit.submission", "local_cloud")
    ),
)


class Terminal:
    """Terminal of a user who runs `castor` on a separate controller."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._log = state.with_suffix(".log")
        self.controller: subprocess.Popen[bytes] | None = None
        castor_variables = ("CASTOR_URL", "CASTOR_TOKEN", "CASTOR_STATE")
        self._environment = {
            name: os.environ[name] for name in os.environ if name not in castor_variables
        }
        self._environment |= {"CASTOR_STATE": str(state), "COLUMNS": "200"}
        # The shell is the argument, not the parent of this process, which may be none.
        self._environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"

    def castor(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in a process forked from one with the imports."""
        outputs = (self.state.with_suffix(".stdout"), self.state.with_suffix(".stderr"))
        arguments = (APP, *map(str, words))
        process = nursery(*_IMPORTED).start(
            Order(arguments, outputs[0], self._environment, outputs[1])
        )
        code = process.wait(60)
        return subprocess.CompletedProcess(
            arguments, code, *(path.read_text() for path in outputs)
        )

    def castor_anew(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in a new process, as a shell does."""
        return subprocess.run(
            [*CASTOR, *map(str, words)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self) -> None:
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:2])
        with self._log.open("ab") as log:
            self.controller = subprocess.Popen(
                [*CASTOR, "serve", "--port", "0", "--boot-seconds", "0.1", "--devices", cores],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, "a controller that answers", seconds=120)

    def _answers(self) -> bool:
        assert self.controller is not None and self.controller.poll() is None, (
            self._log.read_text()
        )
        return self.castor("status").returncode == 0

    def kill(self) -> None:
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def end(self) -> None:
        """Stop all jobs and the controller."""
        assert self.controller is not None
        for job in ("good", "long"):
            self.castor("stop", job, "--wait")
        self.controller.terminate()
        assert self.controller.wait(60) == -signal.SIGTERM
        assert not (self.state / "castor.db-wal").exists(), "the store was not closed"
        log = self._log.read_text()
        assert "SIGTERM: planning and the API stop; " in log
        assert f"ended; castor serve with the same options and state in {self.state} goes" in log


@pytest.fixture(scope="package", autouse=True)
def built_commands() -> Iterator[None]:
    """Build the commands of an application once: typer's runner builds them for each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Yield one controller for all tests of a module."""
    terminal = Terminal(tmp_path_factory.mktemp("castor") / "state")
    try:
        terminal.start()
        yield terminal
    finally:
        terminal.end()
