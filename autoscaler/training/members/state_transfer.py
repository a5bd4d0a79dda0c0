"""Server and receiver of the state of one rank."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from autoscaler.clock import Clock
from autoscaler.domain.errors import MismatchError
from autoscaler.training.members.state_fetch import Fetch, StalledError
from autoscaler.training.members.state_server import StateServer
from autoscaler.training.state.reception import Description, StateBuffer
from autoscaler.training.state.training_state import TrainingState


class StateTransfer:
    """Server of this rank's state for others, and receiver of theirs.

    Attributes:
        server: server of the state.
        fetch: transfer to this rank that is under way or was interrupted; None without one.
        is_torn: whether the state was received in part only.
    """

    def __init__(self, bind_address: str, token: str, state: TrainingState, clock: Clock) -> None:
        self._token = token
        self._state = state
        self._clock = clock
        self._in_place = True
        self.server = StateServer(bind_address, token)
        self.fetch: Fetch | None = None
        self.is_torn = False

    def serve(self, key: str) -> None:
        """Serve the present state, named `key`, until `server.stop`. It must not change."""
        self.server.serve(key, self._state.state_dict())

    def begin(self, key: str, addresses: Sequence[str], in_place: bool) -> FetchRun:
        """Start to receive the state `key`, or resume the interrupted transfer of this state.

        Args:
            key: name of the state.
            addresses: addresses of the servers that have it.
            in_place: whether to receive into the present state. If the sources are lost, a rank
                that has trained may be the only one with its state.
        """
        self._in_place = in_place
        if self.fetch is None or self.fetch.key != key:
            self.fetch = None  # free its memory before that of the next one is allocated
            self.fetch = Fetch(key, self._token, self._prepare_memory, self._clock)
        return FetchRun(self.fetch, addresses)

    def load(self) -> None:
        """Load the state that was received."""
        fetch, self.fetch = self.fetch, None
        assert fetch is not None, "no state was received"
        self._state.load_state_dict(fetch.complete())
        self.is_torn = False

    def _prepare_memory(self, description: Description) -> StateBuffer:
        self.is_torn = self._in_place
        return self._state.reception(description, in_place=self._in_place)


class FetchRun:
    """Run of a transfer in a thread."""

    def __init__(self, fetch: Fetch, addresses: Sequence[str]) -> None:
        self._fetch = fetch
        self._addresses = addresses
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="castor-fetch", daemon=True)
        self._error: Exception | None = None
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether all was received, or the run has failed."""
        return not self._thread.is_alive()

    @property
    def error(self) -> Exception | None:
        """Error of the run; None while it runs, and if all was received."""
        return self._error

    @property
    def has_stalled(self) -> bool:
        """Whether the run has failed as no bytes arrived."""
        return isinstance(self._error, StalledError)

    @property
    def size_bytes(self) -> int:
        """Size of the state in bytes; 0 before it is known."""
        return self._fetch.size_bytes

    def wait(self, seconds: float) -> None:
        """Wait until the run has ended, at most for some seconds."""
        self._thread.join(seconds)

    def end(self) -> None:
        """Cancel the run and wait until its thread has ended.

        Raises:
            MismatchError: the state is that of another model.
        """
        self._cancelled.set()
        self._fetch.break_connections()
        self._thread.join()
        if isinstance(self._error, MismatchError):
            raise self._error

    def _run(self) -> None:
        try:
            self._fetch.run(self._addresses, self._cancelled)
        except Exception as error:
            self._error = error
