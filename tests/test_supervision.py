"""Lock of a state directory, and files that a dead process left there."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.errors import Conflict, Unavailable
from autoscaler.domain.job import SecretReference
from autoscaler.supervision import LOCK_FILE, SupervisedController, secret_options


class Releasing(VirtualClock):
    """Lets go of a lock after so many waits."""

    def __init__(self, lock: Path, waits: int) -> None:
        super().__init__()
        self._held = lock.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._waits = waits

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._waits -= 1
        if self._waits == 0:
            self._held.close()


def test_a_directory_has_one_holder(tmp_path: Path) -> None:
    first, second = (SupervisedController(tmp_path, (0,), VirtualClock()) for _ in range(2))
    with first.alone():
        with pytest.raises(Conflict, match="another process runs on"), second.alone():
            pass
        assert second.terminate_all()  # nothing of the first one's
    with second.alone():
        pass


def test_a_controller_waits_for_the_end_of_a_dead_holder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Releasing(tmp_path / LOCK_FILE, 3)
    with SupervisedController(tmp_path, (0,), clock).alone():
        assert clock.now() > 0.0
    (told,) = caplog.records
    assert "is ending in" in told.getMessage()
    stuck = Releasing(tmp_path / LOCK_FILE, -1)
    with (
        pytest.raises(Conflict, match="another controller runs on"),
        SupervisedController(tmp_path, (0,), stuck).alone(),
    ):
        pass


def test_a_controller_that_refuses_to_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_text("not a key")
    controller = SupervisedController(tmp_path, (0,), SystemClock())
    with (
        controller.alone(),
        pytest.raises(Unavailable, match=r"secret\.key is not a signing key.*; see "),
        controller.running(),
    ):
        pass
    assert controller.last_lines().count("not a signing key") == 3


def test_a_controller_that_never_answers_is_not_awaited_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    controller = SupervisedController(tmp_path, (0,), clock)
    monkeypatch.setattr(controller, "_command", ["sleep", "600"])
    began_seconds = clock.now()
    with pytest.raises(Unavailable, match="does not start within 120 s"), controller.running():
        pass
    assert clock.now() - began_seconds == pytest.approx(120.0, abs=1.0)
    assert controller._process is not None
    controller._process.kill()
    controller._process.wait()


def test_a_controller_of_ones_own_gives_the_secrets_that_its_jobs_name(tmp_path: Path) -> None:
    secrets = {
        "A": SecretReference(variable="HF_TOKEN"),
        "B": SecretReference(file=str(tmp_path / "key")),
        "C": SecretReference(file=str(tmp_path / "absent" / "key")),
    }
    options = ("--secret-variables", "HF_TOKEN", "--secrets", str(tmp_path))
    assert secret_options(secrets) == options
    assert secret_options({}) == ()
