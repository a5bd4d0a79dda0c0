"""Settings of a training process before it trains: warnings and CPU affinity."""

from __future__ import annotations

import logging
import os
import warnings

import torch


def silence_what_is_intended() -> None:
    """Suppress warnings about intended behaviour in the job's log."""
    for message in (
        ".*torch.distributed is disabled, unavailable or uninitialized",
        ".*given buffer is not writable",
        ".*LeafSpec",
    ):
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger("torchft.manager").setLevel(logging.ERROR)


def pin_to_own_core(local_rank: int) -> None:
    """Pin this rank to its CPU core if the instance's devices are cores."""
    devices = os.environ.get("CASTOR_DEVICES", "")
    cores = [int(core) for core in devices.split(",") if core.strip()]
    if local_rank < len(cores):
        os.sched_setaffinity(0, {cores[local_rank]})
        torch.set_num_threads(1)
