"""Power button of the instance, which the agent can press."""

from __future__ import annotations

import os
import signal


class PowerButton:
    """Shutdown of the instance without its controller.

    The parent process of the agent stands for the machine, and SIGTERM shuts the machine down.
    After the death of that process, the agent has another parent, which must not get the signal.
    """

    def __init__(self) -> None:
        self._machine = os.getppid()

    def press(self) -> None:
        """Shut the instance down.

        Raises:
            SystemExit: the machine's process has died; only this agent ends.
        """
        if os.getppid() != self._machine:
            raise SystemExit("castor: the machine of this instance is gone")
        os.kill(self._machine, signal.SIGTERM)
