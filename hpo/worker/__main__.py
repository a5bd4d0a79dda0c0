"""Entry point of a worker: ``python -P -m hpo.worker``."""

from __future__ import annotations

from hpo.worker.process import main
from hpo.worker.warm import run_and_leave

if __name__ == "__main__":
    run_and_leave(main)
