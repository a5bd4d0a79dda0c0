"""End of the demo's instances and of its state directory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from autoscaler.cli.demo.scenario import clear_up
from autoscaler.clock import VirtualClock
from autoscaler.supervision import SupervisedController
from autoscaler.wire.client import Client


class Holding(SupervisedController):
    """A controller whose one job holds an instance for so long after it is stopped."""

    def __init__(self, state: Path, seconds: float, is_interrupted: bool = False) -> None:
        self.clock = VirtualClock()
        super().__init__(state, (0,), self.clock)
        self._command = ["sleep", "600"]
        self._until_seconds = seconds
        self._is_interrupted = is_interrupted
        self.stopped: list[str] = []
        self._start()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _connected(self) -> Client:
        return SimpleNamespace(  # type: ignore[return-value]
            jobs=lambda include_ended: [SimpleNamespace(id="job")],
            stop=self.stopped.append,
            fleet=self._fleet,
            close=lambda: None,
        )

    def _fleet(self) -> SimpleNamespace:
        if self._is_interrupted:
            raise KeyboardInterrupt
        is_held = self.clock.now() < self._until_seconds
        return SimpleNamespace(instances=("i",) if is_held else ())


@pytest.mark.parametrize(
    ("seconds", "is_interrupted", "is_kept"),
    [(0.0, False, False), (130.0, False, False), (1e9, False, True), (0.0, True, True)],
)
def test_the_state_below_instances_that_run_is_not_deleted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    is_interrupted: bool,
    is_kept: bool,
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    controller = Holding(state, seconds, is_interrupted)
    clear_up(Console(), controller, keep=False)
    assert controller.stopped == ["job"]
    assert controller.process.poll() is not None, "the controller itself ends anyway"
    assert state.exists() is is_kept
    said = capsys.readouterr().out.replace("\n", "")
    assert (f"castor serve --state {state}" in said) is is_kept
