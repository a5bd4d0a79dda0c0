"""A process that runs a study is killed: what it started ends by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest

DRIVER = Path(__file__).parents[1] / "scripts" / "driver.py"


def alive_in(state: Path) -> list[psutil.Process]:
    """The processes that were started for a state directory."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if str(state) in " ".join(each.info["cmdline"] or [])]


@pytest.mark.slow
def test_nothing_outlives_it_and_the_next_goes_on(tmp_path: Path) -> None:
    state, storage = tmp_path / "state", f"sqlite:///{tmp_path}/study.db"
    environment = {**os.environ, "CASTOR_STATE": str(state)}
    environment.pop("CASTOR_URL", None)
    study = optuna.create_study(study_name="killed", storage=storage)
    with subprocess.Popen([sys.executable, str(DRIVER), storage, "1"], env=environment) as driver:
        while not (study.trials and len(study.trials[0].intermediate_values) > 2):
            time.sleep(0.1)
        driver.kill()
    killed_seconds = time.monotonic()
    assert alive_in(state)
    while alive_in(state):
        assert time.monotonic() - killed_seconds < 60.0
        time.sleep(0.1)
    before = len(study.trials[0].intermediate_values)
    assert not study.trials[0].state.is_finished() and before < 12
    subprocess.run([sys.executable, str(DRIVER), storage, "0"], env=environment, check=True)
    (trial,) = study.trials
    assert trial.value == pytest.approx(trial.params["start"] + sum(range(12)))
