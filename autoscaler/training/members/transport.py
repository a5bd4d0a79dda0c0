"""How a joiner receives the state of the job from a replica that has it.

torchft's own transport serves the state to anyone who can reach the port and loads it as a
pickle. This one serves it on one address, to holders of the job's token, and loads nothing but
tensors and plain containers. It has the methods of torchft's `CheckpointTransport`.
"""

from __future__ import annotations

import hmac
import threading
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import torch
from torch.distributed._serialization import _streaming_load, _streaming_save
from torch.utils._pytree import tree_map

_PATIENCE_SECONDS = 10.0


class PeerTransport:
    """Serves the state of one step to the peers that are behind, and fetches it when we are.

    The state is handed over by reference and served until `disallow_checkpoint`: in the step in
    which a peer joins, its first collective comes after its fetch, so the tensors can't change
    under it.
    """

    def __init__(self, bind_address: str, token: str) -> None:
        self._token = token
        self._served: tuple[int, object] | None = None
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer((bind_address, 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._bind_address = bind_address

    def metadata(self) -> str:
        """The address that peers fetch from."""
        return f"http://{self._bind_address}:{self._server.server_address[1]}/state/"

    def send_checkpoint(
        self, dst_ranks: list[int], step: int, state_dict: object, timeout: timedelta
    ) -> None:
        """Serve `state_dict` as the state at `step`."""
        on_cpu = tree_map(
            lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, state_dict
        )
        with self._changed:
            self._served = (step, on_cpu)
            self._changed.notify_all()

    def disallow_checkpoint(self) -> None:
        """Serve nothing from now on."""
        with self._changed:
            self._served = None

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """Fetch the state at `step` from the peer at `metadata`.

        Raises:
            urllib.error.URLError, OSError: the peer is gone, refuses, or has moved on.
        """
        request = urllib.request.Request(
            f"{metadata}{step}", headers={"Authorization": f"Bearer {self._token}"}
        )
        with urllib.request.urlopen(request, timeout=timeout.total_seconds()) as response:
            return _streaming_load(cast(Any, response), weights_only=True)

    def shutdown(self, wait: bool = True) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def _state_at(self, step: int) -> object | None:
        """The state at `step`; a peer may ask a moment before it is there."""
        with self._changed:
            self._changed.wait_for(lambda: self._served is not None, _PATIENCE_SECONDS)
            return self._served[1] if self._served and self._served[0] == step else None

    def _allows(self, authorization: str | None) -> bool:
        return hmac.compare_digest(authorization or "", f"Bearer {self._token}")


def _handler(transport: PeerTransport) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            if not transport._allows(self.headers.get("Authorization")):
                self.send_error(403)
                return
            step = self.path.removeprefix("/state/")
            state = transport._state_at(int(step)) if step.isdigit() else None
            if state is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            _streaming_save(state, cast(Any, self.wfile))

        def log_message(self, format: str, *arguments: object) -> None:
            """A request is not worth a line in the job's log."""

    return Handler
