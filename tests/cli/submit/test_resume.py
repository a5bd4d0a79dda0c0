"""`castor resume JOB --file FILE`: the next run has the file's command, settings and files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.submit.submission import require_bundle
from autoscaler.domain.errors import SpecError
from autoscaler.spec.job_file import load_job
from autoscaler.wire.messages import Resumption

JOB_FILE = """
name: digits
command: python train.py --lr 0.01
environment: {SEED: "1"}
instances: {max: 2}
"""


def test_a_script_that_is_ignored_is_refused_before_anything_is_uploaded(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(JOB_FILE)
    (tmp_path / "train.py").write_text("")
    require_bundle(load_job(tmp_path / "digits.yaml", 0.0))
    (tmp_path / ".gitignore").write_text("train*")
    with pytest.raises(SpecError, match=r"command: train\.py would not be packed: .* \.gitignore"):
        require_bundle(load_job(tmp_path / "digits.yaml", 0.0))


def test_a_job_is_resumed_with_the_job_file_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits.yaml").write_text(JOB_FILE)
    (tmp_path / "train.py").write_text("")
    sent: list[Resumption] = []

    def resume(name: str, resumption: Resumption, archive: Path) -> SimpleNamespace:
        assert name == "digits" and archive.is_file()
        sent.append(resumption)
        return SimpleNamespace(id="digits.2", phase="pending", checkpoint_directory="/here")

    client = SimpleNamespace(resume=resume)
    monkeypatch.setattr("autoscaler.wire.connection.connect", lambda: client)
    words = ["resume", "digits", "max=4", "--file", str(tmp_path / "digits.yaml")]
    result = CliRunner().invoke(app, words)
    assert result.stdout == "digits.2 pending: continues from /here\n"
    (resumption,) = sent
    assert resumption.spec is not None and resumption.spec.bundle is not None
    assert resumption.spec.command[-2:] == ("--lr", "0.01")
    assert resumption.spec.environment == {"SEED": "1"}
    assert resumption.instances is not None and resumption.instances.maximum == 4
