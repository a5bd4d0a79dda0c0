"""The instance's power button, as far as the agent can reach it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from providers.metadata import InstanceMetadata


def power_off(metadata: InstanceMetadata) -> None:
    """Have the instance end, without its controller.

    The process that started the agent is the machine of a local instance, and SIGTERM its power
    button; on clouds to come `metadata` will say what theirs is.
    """
    with suppress(ProcessLookupError):
        os.kill(os.getppid(), signal.SIGTERM)
