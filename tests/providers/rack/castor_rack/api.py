"""HTTP API of the rack: types of machines, and machines that are started and stopped.

Names of machines are unique while the machines exist. Machines that have ended are not listed.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unavailable,
    UnknownRefusal,
)

_ANSWER_SECONDS = 10.0
_ERRORS: dict[str, type[ProviderError]] = {
    "no_capacity": InsufficientCapacity,
    "quota": QuotaExceeded,
    "forbidden": PermissionDenied,
    "not_found": NotFound,
    "too_many_calls": Throttled,
}


class NameTaken(Exception):
    """A machine of this name exists."""


@dataclass(frozen=True, slots=True)
class RackApi:
    """Calls of one account, whose `token` is empty where the rack needs none."""

    url: str
    token: str = ""

    def types(self) -> list[dict[str, Any]]:
        """Return the types: `name`, `gpu`, `gpus`, `usd_per_hour`."""
        return self._call("GET", "types")  # type: ignore[no-any-return]

    def machines(self, label: str, value: str) -> list[dict[str, Any]]:
        """Return the machines with a label.

        Each has `id`, `name`, `status`, `labels`, `created` and `ends`: None, or the times
        `announced` and `at` of its reclaim.
        """
        return self._call("GET", f"machines?{urlencode({label: value})}")  # type: ignore[no-any-return]

    def start(self, machine: dict[str, Any]) -> dict[str, Any]:
        """Start a machine: `name`, `type`, `labels`, `user_data`.

        Raises:
            NameTaken: a machine of this name exists.
        """
        return self._call("POST", "machines", machine)  # type: ignore[no-any-return]

    def stop(self, machine_id: str) -> None:
        """Stop a machine for good.

        Raises:
            NotFound: it has ended.
        """
        self._call("DELETE", f"machines/{machine_id}")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = Request(f"{self.url}/{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=_ANSWER_SECONDS) as reply:
                return json.loads(reply.read() or b"null")
        except HTTPError as error:
            raise _refusal(f"{method} {path}", error.code, error.read()) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"rack: {method} {path}: {error}") from error


def _refusal(call: str, status: int, body: bytes) -> Exception:
    try:
        code = str(json.loads(body)["code"])
    except (ValueError, TypeError, KeyError):
        code = ""
    if code == "name_taken":
        return NameTaken()
    otherwise = Unavailable if status >= 500 else UnknownRefusal
    return _ERRORS.get(code, otherwise)(f"rack: {call}: {code or status}")
