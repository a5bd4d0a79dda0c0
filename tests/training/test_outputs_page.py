"""The code of docs/outputs.md, run against a checkpoint that a session wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session

PAGE = Path(__file__).parents[2] / "docs" / "outputs.md"


def parts() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder in which `digits` has been fetched, and what the session ended with."""
    folder = tmp_path_factory.mktemp("fetched")
    torch.manual_seed(0)
    trained = parts()
    dataset = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    directory = str(folder / "digits")
    with session(dataset=dataset, batch_size=16, checkpoint_directory=directory, **trained) as job:
        for inputs, targets in job.batches(epochs=2):
            job.step((job.model(inputs) - targets).square().mean())
    return folder, trained


def test_the_page_restores_model_optimizer_and_scheduler(
    trained: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, ended = trained
    monkeypatch.chdir(folder)
    text = PAGE.read_text().partition("## A checkpoint in plain PyTorch")[2]
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if "dcp.load" not in block]  # of a sharded model
    assert len(blocks) == 3
    torch.manual_seed(1)
    restored = parts()
    exec("\n".join(blocks), restored)
    for name, tensor in ended["model"].state_dict().items():
        assert torch.equal(restored["model"].state_dict()[name], tensor), name
    saved, loaded = (each["optimizer"].state_dict() for each in (ended, restored))
    for number, values in saved["state"].items():
        for key, value in values.items():
            assert torch.equal(loaded["state"][number][key], value), (number, key)
    assert loaded["param_groups"][0]["lr"] == saved["param_groups"][0]["lr"]
    assert restored["scheduler"].state_dict() == ended["scheduler"].state_dict()
    assert capsys.readouterr().out == "step 8 of 128.0 examples\n"


def test_a_session_without_castor_goes_on_from_it(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = trained
    dataset = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    directory = str(folder / "digits")
    with session(dataset=dataset, batch_size=16, checkpoint_directory=directory, **parts()) as job:
        assert job.progress_examples == 128.0
        for inputs, targets in job.batches(epochs=3):
            job.step((job.model(inputs) - targets).square().mean())
