"""What a training process does to itself before it trains."""

from __future__ import annotations

import logging
import os
import warnings

import torch


def silence_what_is_intended() -> None:
    """Keep a job's log free of warnings about what is done here on purpose."""
    for message in (
        ".*torch.distributed is disabled, unavailable or uninitialized",
        ".*given buffer is not writable",
        ".*LeafSpec",
    ):
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger("torchft.manager").setLevel(logging.ERROR)


def pin_to_own_core(local_rank: int) -> None:
    """Keep this rank on the core that is its device, where devices are cores."""
    devices = os.environ.get("CASTOR_DEVICES", "")
    cores = [int(core) for core in devices.split(",") if core.strip()]
    if local_rank < len(cores):
        os.sched_setaffinity(0, {cores[local_rank]})
        torch.set_num_threads(1)
