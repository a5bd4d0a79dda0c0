"""Controller that serves HTTPS with a certificate of its own, and an instance that trusts it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.job import JobPhase
from autoscaler.tls import keep_self_signed, self_signed_files
from autoscaler.wire.client import Client
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.local_job import LocalJob

SCRIPT = "print('it ran', flush=True)\n"
JOB = "name: hello\ncommand: python hello.py\ninstances: {min: 1, max: 1}\n"


def test_an_instance_joins_over_tls_and_others_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(SCRIPT)
    (tmp_path / "hello.yaml").write_text(JOB)
    deployment = Deployment(tmp_path, {}, options=("--tls-cert", "auto"))
    with deployment.running():
        deployment.castor("submit", tmp_path / "hello.yaml")
        job = LocalJob(deployment, "hello", 120.0)
        ended = job.wait_for_end()
        assert ended.phase is JobPhase.FINISHED, ended.cause
        assert "it ran" in deployment.castor("logs", "hello")
        saved = json.loads((deployment.state / "client.json").read_text())
        assert saved["url"].startswith("https://")
        certificate = Path(saved["authority"]).read_text()
        Client(saved["url"], saved["token"], authority=certificate).fleet()
        other = self_signed_files(tmp_path)
        keep_self_signed(other, ["127.0.0.1"], 1_800_000_000.0)
        for authority in (other.authority_text(), None):
            with pytest.raises(Unavailable, match="certificate verify failed"):
                Client(saved["url"], saved["token"], authority=authority).fleet()
        address = urlsplit(saved["url"]).netloc
        with pytest.raises(Unavailable):
            Client(f"http://{address}", saved["token"]).fleet()
