"""The examples of docs/how-to.md, as they stand there."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import TensorDataset

from autoscaler.spec.job_file import load_job

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.mark.parametrize("text", blocks("yaml"))
def test_job_files_can_be_used(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    assert load_job(file, 0.0).spec.name == "words"


def test_a_run_of_weights_and_biases_is_resumed_by_the_id_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[dict[str, object]] = []
    logged: list[dict[str, float]] = []

    def init(**options: object) -> SimpleNamespace:
        runs.append(options)
        return SimpleNamespace(log=logged.append, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    model = torch.nn.Linear(4, 1)
    names = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "dataset": TensorDataset(torch.randn(64, 4), torch.randn(64, 1)),
        "loss_function": torch.nn.MSELoss(),
    }
    (script,) = blocks("python")
    exec(textwrap.dedent(script), names)  # the document's own words
    assert len(runs) == 1 and runs[0]["resume"] == "allow"
    assert len(logged) == 12
    assert logged[-1]["examples"] == pytest.approx(64 * 6)
