"""torchrun for the ranks of one instance, with its meeting point on the loopback interface only.

What `torchrun --standalone` opens for its ranks listens on every interface and asks nobody who
they are. The ranks of an instance need it among themselves only.

``python -m autoscaler.training.launch RANKS COMMAND...`` runs the command once for each rank.
"""

from __future__ import annotations

import sys

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

from autoscaler.training.ports import bound_store

_ADDRESS = "127.0.0.1"
_BACKEND = "loopback"


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
    """Run the command of the command line on all ranks."""
    ranks, *command = sys.argv[1:]
    rendezvous_handler_registry.register(_BACKEND, LoopbackRendezvous)
    options = (
        f"--rdzv-backend={_BACKEND}",
        f"--rdzv-endpoint={_ADDRESS}",
        f"--nproc-per-node={ranks}",
        *("--nnodes=1", "--max-restarts=0", "--no-python"),
    )
    try:
        run.main([*options, *command])
    except SignalException as told:  # to be told to end is no error to show a traceback of
        raise SystemExit(128 + told.sigval) from None


if __name__ == "__main__":
    main()
