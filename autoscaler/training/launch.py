"""torchrun for the ranks of one instance, with its meeting point on the loopback interface only.

What `torchrun --standalone` opens for its ranks listens on every interface and asks nobody who
they are. The ranks of an instance need it among themselves only.

``python -m autoscaler.training.launch RANKS COMMAND...`` runs the command once for each rank.
"""

from __future__ import annotations

import os
import sys
from tempfile import TemporaryDirectory

from torch._C._distributed_c10d import PrefixStore
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from autoscaler.training.collectives.nccl import keep_process_at_nccl_errors
from autoscaler.training.collectives.ports import bound_store

_ADDRESS = "127.0.0.1"
_BACKEND = "loopback"
RANK_PREFIX = "[rank ${local_rank}] "


class LoopbackRendezvous(RendezvousHandler):
    """The meeting of the one node that there is, with a store that only its ranks can reach."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._store, self._port = bound_store(_ADDRESS)

    def get_backend(self) -> str:
        """The name under which it is known."""
        return _BACKEND

    @property
    def use_agent_store(self) -> bool:
        """The ranks use the store too."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """All are there at once."""
        store = PrefixStore(self._run_id, self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_ADDRESS, self._port))

    def is_closed(self) -> bool:
        """It never is."""
        return False

    def set_closed(self) -> None:
        """There is nobody to tell."""

    def num_nodes_waiting(self) -> int:
        """Nobody else will come."""
        return 0

    def get_run_id(self) -> str:
        """The name of this run."""
        return self._run_id

    def shutdown(self) -> bool:
        """It ends with its process."""
        return True


def main() -> None:
    """Run the command of the command line on all ranks.

    Where there are several ranks, each line that they print begins with its rank. The directory
    of torchrun's own files is in the job's home, and is removed at the end.
    """
    ranks, *command = sys.argv[1:]
    rendezvous_handler_registry.register(_BACKEND, LoopbackRendezvous)
    keep_process_at_nccl_errors(os.environ)
    is_one = ranks == "1"
    if not is_one:
        os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = RANK_PREFIX
    home = os.environ.get("HOME", "")
    place = home if os.access(home, os.W_OK | os.X_OK) else None
    with TemporaryDirectory(
        prefix=".castor-ranks-", dir=place, ignore_cleanup_errors=True
    ) as logs:
        options = (
            f"--rdzv-backend={_BACKEND}",
            f"--rdzv-endpoint={_ADDRESS}",
            f"--nproc-per-node={ranks}",
            f"--log-dir={logs}",
            *("--nnodes=1", "--max-restarts=0", "--no-python"),
            *(() if is_one else ("--tee=3",)),
        )
        try:
            run.main([*options, *command])
        except SignalException as told:  # to be told to end is no error to show a traceback of
            raise SystemExit(128 + told.sigval) from None


if __name__ == "__main__":
    main()
