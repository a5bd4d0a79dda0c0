"""Refusals in the wording of Google Cloud's APIs."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """Refusal of a call; clients distinguish refusals by `reason`."""

    def __init__(
        self, status: int, reason: str, message: str, domain: str = "global", state: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self._domain = domain
        self._state = state

    def body(self) -> dict[str, Any]:
        """Return the body of the reply."""
        detail = {"message": self.message, "domain": self._domain, "reason": self.reason}
        error: dict[str, Any] = {
            "code": self.status,
            "message": self.message,
            "errors": [detail],
        }
        if self._state:
            error["status"] = self._state
        return {"error": error}


def not_found(resource: str) -> Refusal:
    """Return the refusal for a resource that does not exist."""
    return Refusal(404, "notFound", f"The resource '{resource}' was not found")


def already_exists(resource: str) -> Refusal:
    return Refusal(409, "alreadyExists", f"The resource '{resource}' already exists")


def invalid(at: str, value: object, why: str) -> Refusal:
    """Return the refusal for an invalid value of a known field."""
    return Refusal(400, "invalid", f"Invalid value for field '{at}': '{value}'. {why}")


def required(at: str) -> Refusal:
    return Refusal(400, "required", f"Required field '{at}' not specified")


def unknown(message: str) -> Refusal:
    """Return the refusal of the front end, which parses a call before the service."""
    return Refusal(
        400, "badRequest", f"Invalid JSON payload received. {message}", state="INVALID_ARGUMENT"
    )


def unreachable(places: str) -> Refusal:
    return Refusal(503, "backendError", f"{places} can't be reached. Try again later.")


def over_quota(metric: str, limit: float, region: str) -> Refusal:
    message = f"Quota '{metric}' exceeded.  Limit: {limit} in region {region}."
    return Refusal(403, "quotaExceeded", message, domain="usageLimits")


def injected(status: int, reason: str) -> Refusal:
    """Return the refusal that a test has injected."""
    is_limit = reason in ("rateLimitExceeded", "quotaExceeded", "userRateLimitExceeded")
    return Refusal(status, reason, "injected", domain="usageLimits" if is_limit else "global")
