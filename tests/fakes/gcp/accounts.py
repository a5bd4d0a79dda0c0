"""Service accounts: tokens for callers that may act as an account."""

from __future__ import annotations

from typing import Final

from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Body, utc_timestamp

_WILDCARD: Final = "projects/-/serviceAccounts/"
_LONGEST_SECONDS: Final = 3600


def generate_access_token(call: Call) -> Body:
    """Return a token without restrictions, as all tokens of the fake that are not downscoped."""
    name = call.parameters["name"]
    if not name.startswith(_WILDCARD):
        raise _invalid(f"The name {name} must begin with {_WILDCARD}.")
    if not call.body.get("scope"):
        raise _invalid("The scope is required.")
    lifetime = call.body.get("lifetime") or f"{_LONGEST_SECONDS}s"
    seconds = float(lifetime.removesuffix("s"))
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise _invalid(f"The lifetime {lifetime} must be {_LONGEST_SECONDS}s at most.")
    email = name.removeprefix(_WILDCARD)
    end = utc_timestamp(call.project.clock.now() + seconds)
    return {"accessToken": f"ya29.{email}", "expireTime": end}


def _invalid(message: str) -> Refusal:
    return Refusal(400, "badRequest", message, state="INVALID_ARGUMENT")


HANDLERS: dict[str, Handler] = {
    "iamcredentials.projects.serviceAccounts.generateAccessToken": generate_access_token,
}
