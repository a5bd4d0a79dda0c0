"""Where things are in an instance's own directory."""

from __future__ import annotations

from pathlib import Path

_OPEN_TO_PASS = 0o711


class Disk:
    """The files of one instance. Only `work` and `home` belong to the job's own user."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # The job's user has to get through to `work`, and need not see what is beside it.
        directory.chmod(_OPEN_TO_PASS)
        self.directory = directory
        self.state = directory / "agent.json"
        self.answered = directory / "answered"
        self.transfers = directory / "transfers.json"
        self.log = directory / "job.log"
        self.work = directory / "work"
        self.home = directory / "home"
        self.training = directory / "training"
        self.trial_calls = directory / "trial-calls"
        self.setup = directory / "setup"
        self.grant = directory / "grant" / "grant.json"
        self.laid_out = directory / "laid-out.json"
        self.outputs = directory / "outputs.json"
        self.staged_outputs = directory / "staged-outputs"

    def bundle(self, sha256: str) -> Path:
        """Where the archive of a job's files is kept."""
        return self.directory / f"bundle-{sha256}.tar.gz"

    def forget_bundles(self) -> None:
        """Remove the archives of all jobs before."""
        for archive in self.directory.glob("bundle-*"):
            archive.unlink()

    def checkpoints(self, directory: str) -> Path:
        """Where checkpoints are that are to be in `directory`: an absolute one is not ours."""
        return self.directory / "checkpoints" / directory

    def socket(self) -> Path:
        """The socket of the training process, alone in its directory, always the same."""
        place = self.directory / "line"
        place.mkdir(mode=_OPEN_TO_PASS, exist_ok=True)
        return place / "agent.sock"
