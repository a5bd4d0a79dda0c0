"""Client of the HTTP API for a terminal that logs a person in."""

from __future__ import annotations

from httpcore import ConnectionInterface

from autoscaler.wire.access_messages import (
    BegunLogin,
    LoginReply,
    LoginRequest,
    LoginTokenRequest,
)
from autoscaler.wire.codec import decode_printable, encode
from autoscaler.wire.http import Http


class LoginClient:
    """Client of a terminal that logs a person in, without a token. Errors as in `Client`."""

    def __init__(
        self,
        url: str,
        connections: ConnectionInterface | None = None,
        *,
        authority: str | None = None,
    ) -> None:
        self._http = Http(url, None, connections, authority)

    def begin(self, request: LoginRequest) -> BegunLogin:
        """Begin a login. `NotFound`: the controller has no identity provider."""
        body = encode(LoginRequest, request)
        return decode_printable(BegunLogin, self._http.call("POST", "/v1/logins", body))

    def token(self, device_code: str) -> LoginReply:
        """Return the state of a login, with its token once a person approved it."""
        body = encode(LoginTokenRequest, LoginTokenRequest(device_code))
        return decode_printable(LoginReply, self._http.call("POST", "/v1/logins/token", body))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
