"""The instance's power button, as far as the agent can reach it."""

from __future__ import annotations

import os
import signal


class PowerButton:
    """Ends the instance without its controller.

    The process that started the agent is the machine of a local instance, and SIGTERM its power
    button; on clouds to come the instance's metadata will say what theirs is. An agent whose
    machine has died has another parent, which is a stranger.
    """

    def __init__(self) -> None:
        self._machine = os.getppid()

    def press(self) -> None:
        """Have the instance end.

        Raises:
            SystemExit: its machine is gone; then only this agent ends.
        """
        if os.getppid() != self._machine:
            raise SystemExit("castor: the machine of this instance is gone")
        os.kill(self._machine, signal.SIGTERM)
