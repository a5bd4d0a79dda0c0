"""Metadata service (IMDSv2) of the fake EC2's instances, each at its own address."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

SESSION: Final = "session-of-the-fake"
_TOKEN_PATH: Final = "api/token"


class MetadataService:
    """Server of the facts of instances at ``/INSTANCE/latest/...``.

    A request without IMDSv2's session token gets no facts.
    """

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, str]] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                is_token = self.path.endswith(f"/latest/{_TOKEN_PATH}")
                self._reply(SESSION if is_token else None)

            def do_GET(self) -> None:
                if self.headers.get("X-aws-ec2-metadata-token") != SESSION:
                    self._reply(None, 401)
                    return
                instance, _, path = self.path.removeprefix("/").partition("/latest/")
                self._reply(service._facts.get(instance, {}).get(path))

            def _reply(self, text: str | None, missing: int = 404) -> None:
                body = (text or "").encode()
                self.send_response(200 if text is not None else missing)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def url(self, instance: str) -> str:
        """Return the URL that replaces ``http://169.254.169.254`` for an instance."""
        return f"http://127.0.0.1:{self._server.server_port}/{instance}"

    def add_facts(self, instance: str, facts: dict[str, str]) -> None:
        """Add facts of an instance, by path."""
        self._facts[instance] = {**self._facts.get(instance, {}), **facts}

    def announce_end(self, instance: str, at_seconds: float) -> None:
        """Give an instance the notice of its interruption at a time."""
        moment = datetime.fromtimestamp(at_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        action = json.dumps({"action": "terminate", "time": moment})
        self.add_facts(instance, {"meta-data/spot/instance-action": action})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
