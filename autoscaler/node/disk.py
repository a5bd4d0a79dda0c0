"""Paths of files in the directory of an instance."""

from __future__ import annotations

from pathlib import Path

_TRAVERSABLE_MODE = 0o711


class Disk:
    """Files of one instance. Only `work` and `home` belong to the job's user."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # The job's user must reach `work`, but need not list this directory.
        directory.chmod(_TRAVERSABLE_MODE)
        self.directory = directory
        self.state = directory / "agent.json"
        self.answered = directory / "answered"
        self.transfers = directory / "transfers.json"
        self.time = directory / "time.json"
        self.log = directory / "job.log"
        self.work = directory / "work"
        self.home = directory / "home"
        self.training = directory / "training"
        self.trial_calls = directory / "trial-calls"
        self.setup = directory / "setup"
        self.grant = directory / "grant" / "grant.json"
        self.registry_login = directory / "registry-login"
        self.laid_out = directory / "laid-out.json"
        self.outputs = directory / "outputs.json"
        self.staged_outputs = directory / "staged-outputs"
        self.staged_saves = directory / "staged-saves"

    def bundle(self, sha256: str) -> Path:
        """Return the path of the archive of a job's files."""
        return self.directory / f"bundle-{sha256}.tar.gz"

    def forget_bundles(self) -> None:
        """Delete the archives of all earlier jobs."""
        for archive in self.directory.glob("bundle-*"):
            archive.unlink()

    def checkpoints(self, directory: str) -> Path:
        """Return the directory of checkpoints; an absolute `directory` is returned unchanged."""
        return self.directory / "checkpoints" / directory

    def socket(self) -> Path:
        """Return the path of the training process's socket, and create its directory."""
        parent = self.directory / "line"
        parent.mkdir(mode=_TRAVERSABLE_MODE, exist_ok=True)
        return parent / "agent.sock"
