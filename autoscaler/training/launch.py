"""torchrun for the ranks of one instance, with a rendezvous on the loopback interface only.

The store of `torchrun --standalone` listens on every interface without authentication. The ranks
of an instance need it only among themselves.

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
    """Rendezvous of a single node, with a store that only its ranks can reach."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._store, self._port = bound_store(_ADDRESS)

    def get_backend(self) -> str:
        """Return the backend's registered name."""
        return _BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Whether the ranks use the same store; always true."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the rendezvous of this single node, at once."""
        store = PrefixStore(self._run_id, self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_ADDRESS, self._port))

    def is_closed(self) -> bool:
        """Return False: the rendezvous is never closed."""
        return False

    def set_closed(self) -> None:
        """Do nothing, as there are no other nodes."""

    def num_nodes_waiting(self) -> int:
        """Return 0: no other node joins."""
        return 0

    def get_run_id(self) -> str:
        """Return the id of this run."""
        return self._run_id

    def shutdown(self) -> bool:
        """Return True: the rendezvous ends with its process."""
        return True


def main() -> None:
    """Run the command given on the command line once per rank.

    With several ranks, each line of output begins with its rank. The directory of torchrun's own
    files is in the job's home, and is removed at the end.
    """
    ranks, *command = sys.argv[1:]
    rendezvous_handler_registry.register(_BACKEND, LoopbackRendezvous)
    keep_process_at_nccl_errors(os.environ)
    is_one = ranks == "1"
    if not is_one:
        os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = RANK_PREFIX
    home = os.environ.get("HOME", "")
    parent = home if os.access(home, os.W_OK | os.X_OK) else None
    with TemporaryDirectory(
        prefix=".castor-ranks-", dir=parent, ignore_cleanup_errors=True
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
        except SignalException as signal:  # a requested end needs no traceback
            raise SystemExit(128 + signal.sigval) from None


if __name__ == "__main__":
    main()
