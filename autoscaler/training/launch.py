"""torchrun for the ranks of one instance, alone or together with those of its gang.

``python -m autoscaler.training.launch RANKS COMMAND...`` runs the command once for each rank.
With ``--gang INDEX INSTANCES HOST:PORT RUN ADDRESS`` before RANKS, the ranks of all instances of a
gang form one world: this is the instance INDEX of INSTANCES with its own ADDRESS, and instance 0
hosts the rendezvous of the start RUN at HOST:PORT.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)

from autoscaler.clock import SystemClock
from autoscaler.domain.gang import PEER_ENDED_STATUS
from autoscaler.training.collectives.nccl import keep_process_at_nccl_errors
from autoscaler.training.collectives.ports import use_interface_of
from autoscaler.training.rendezvous import (
    BACKEND,
    LOOPBACK,
    End,
    GangNode,
    GangRendezvous,
    LocalRendezvous,
    PeerEnded,
)

_GANG_OPTION: Final = "--gang"
RANK_PREFIX: Final = "[rank ${rank}] "


@dataclass(frozen=True, slots=True)
class Launch:
    """Ranks of this instance and their command; `node` is None without a gang."""

    ranks: int
    command: Sequence[str]
    node: GangNode | None = None


def read_arguments(arguments: Sequence[str]) -> Launch:
    """Return the launch that the command line asks for; make gloo use a gang's own address."""
    node = None
    if arguments[0] == _GANG_OPTION:
        index, instances, address, run_id, own_address = arguments[1:6]
        node = GangNode(int(index), int(instances), address, run_id)
        use_interface_of(own_address)
        arguments = arguments[6:]
    ranks, *command = arguments
    return Launch(int(ranks), command, node)


def main() -> None:
    """Run the command given on the command line once per rank.

    With several ranks, each line of output begins with its rank. The directory of torchrun's own
    files is in the job's home, and is removed at the end.
    """
    launch = read_arguments(sys.argv[1:])
    keep_process_at_nccl_errors(os.environ)
    if launch.ranks > 1:
        os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = RANK_PREFIX
    home = os.environ.get("HOME", "")
    parent = home if os.access(home, os.W_OK | os.X_OK) else None
    with TemporaryDirectory(
        prefix=".castor-ranks-", dir=parent, ignore_cleanup_errors=True
    ) as logs:
        _run(launch, logs)


def _run(launch: Launch, logs: str) -> None:
    """Run the ranks to their end.

    Raises:
        SystemExit: a signal ended the ranks, or the end of another instance's ranks did.
        ChildFailedError: a rank failed.
    """
    gang = None if launch.node is None else GangRendezvous(launch.node, SystemClock())

    def rendezvous(parameters: RendezvousParameters) -> RendezvousHandler:
        return gang or LocalRendezvous(parameters.run_id)

    rendezvous_handler_registry.register(BACKEND, rendezvous)
    try:
        run.main([*_options(launch, logs), *launch.command])
    except SignalException as signal:  # a requested end needs no traceback
        _end(gang, End.STOPPED)
        raise SystemExit(128 + signal.sigval) from None
    except PeerEnded:
        _end(gang, End.STOPPED)
        raise SystemExit(PEER_ENDED_STATUS) from None
    except ChildFailedError:
        if _end(gang, End.FAILED):
            raise SystemExit(PEER_ENDED_STATUS) from None
        raise
    if _end(gang, End.COMPLETE):
        raise SystemExit(PEER_ENDED_STATUS)


def _options(launch: Launch, logs: str) -> list[str]:
    """Return torchrun's options, with `logs` as the directory of its own files."""
    node = launch.node
    nodes = 1 if node is None else node.instances
    endpoint = LOOPBACK if node is None else node.address
    return [
        f"--rdzv-backend={BACKEND}",
        f"--rdzv-endpoint={endpoint}",
        f"--nproc-per-node={launch.ranks}",
        f"--log-dir={logs}",
        *(f"--nnodes={nodes}", "--max-restarts=0", "--no-python"),
        *(() if launch.ranks == 1 else ("--tee=3",)),
    ]


def _end(gang: GangRendezvous | None, end: End) -> bool:
    """Record the end of the ranks; return whether that of another instance is the cause."""
    return gang is not None and gang.end(end)


if __name__ == "__main__":
    main()
