"""Typed errors: the type decides how the caller reacts. Messages are for people only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoscaler.domain.text import printable, printable_lines

_LONGEST_FIELD: Final = 200


class CastorError(Exception):
    """Base class of all errors of Castor. `str()` gives one line that names a remedy."""


class SpecError(CastorError):
    """Invalid value in a file or a request.

    `field` is the path of the invalid key; `message` is the text without that path. Control
    characters of both are escaped, because they may quote the value.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        message = printable_lines(message)
        field = None if field is None else printable(field)[:_LONGEST_FIELD]
        super().__init__(message if field is None else f"{field}: {message}")
        self.message = message
        self.field = field


class OverQuota(SpecError):
    """Upload beyond the bytes that a person or a study may store."""


class UnknownJob(CastorError):
    """No job has this name."""


class UnknownInstance(CastorError):
    """No instance has this id."""


class Conflict(CastorError):
    """Request that conflicts with the present state, such as a name in use or an ended job."""


class Outdated(Conflict):
    """Change of an object that has changed since the requester read it."""


class NotAllowed(CastorError):
    """Token that is missing, expired, used up, or does not cover the request."""


class Forbidden(CastorError):
    """Request that needs another role, or that only an owner may make."""


class StoreError(CastorError):
    """Store that can't be opened or belongs to another version."""


class NotLeading(StoreError):
    """Controller that does not lead its store: it neither writes nor calls a cloud."""


class LedgerError(CastorError):
    """Ledger entries that contradict each other."""


class CheckpointError(CastorError):
    """Checkpoint that can't be written or read."""


class DivergedError(CastorError, FloatingPointError):
    """Gradient or weight that became NaN or infinite, so that training can't continue."""


class DeviceMemoryError(CastorError, MemoryError):
    """Device without memory for the smallest batch that a rank may process at once."""


class MismatchError(CastorError, ValueError):
    """Replica whose state or configuration differs from that of its peers."""


class SolverError(CastorError):
    """Solver that found no plan. The caller falls back to a coarser method."""


class CurveError(CastorError):
    """Trial reports that form no learning curve, or a question outside the curve's range."""


class ProviderError(CastorError):
    """Base class of refusals and failures of a cloud's API."""


class InsufficientCapacity(ProviderError):
    """The cloud has no capacity for the offer now. Try another offer, or retry later.

    `open_zones` are zones in which, as the cloud says, the type has capacity now.
    """

    def __init__(self, message: str = "", open_zones: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.open_zones = frozenset(open_zones)


class QuotaExceeded(ProviderError):
    """The account's quota is used up. Retrying does not help."""


class Throttled(ProviderError):
    """Too many API calls. Repeat the same call after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class PermissionDenied(ProviderError):
    """The credentials do not permit the call. A person has to fix that."""


class NotFound(ProviderError):
    """The named resource does not exist, or no longer exists."""


class UnknownRefusal(ProviderError):
    """Refusal that Castor has no rule for. The call had no effect; another offer may work."""


class Unavailable(ProviderError):
    """The cloud did not answer, or its answer leaves the outcome of the call unknown.

    Callers must not take an unknown outcome for a refusal.
    """


class Unreachable(Unavailable):
    """No server accepts a connection at the address, as far as this host can see."""
