"""Where things are in an instance's own directory."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from autoscaler.domain.errors import NotAllowed

_LONGEST_PLACE_BYTES = 90
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
        self.log = directory / "job.log"
        self.work = directory / "work"
        self.home = directory / "home"
        self.bundle = directory / "bundle.tar.gz"
        self.training = directory / "training"
        self.setup = directory / "setup"

    def socket(self) -> Path:
        """The socket of the training process, alone in its directory, always the same.

        The path of a Unix socket has at most 107 bytes: in a directory too deep for that it is
        among the temporary files.

        Raises:
            NotAllowed: another user has taken its place there.
        """
        place = self.directory / "line"
        if len(os.fsencode(place)) > _LONGEST_PLACE_BYTES:
            digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
            place = Path(tempfile.gettempdir(), f"castor-{digest}")
        place.mkdir(mode=_OPEN_TO_PASS, exist_ok=True)
        if place.lstat().st_uid != os.geteuid() or place.is_symlink():
            raise NotAllowed(f"{place} is another user's: remove it, or set TMPDIR")
        return place / "agent.sock"
