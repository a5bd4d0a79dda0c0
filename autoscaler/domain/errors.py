"""Errors whose type decides what is done about them. Text is for people only."""

from __future__ import annotations


class CastorError(Exception):
    """Anything Castor refuses or fails at. `str()` of it is one line that names the way out."""


class SpecError(CastorError):
    """A value that a person wrote and that can't be used.

    `field` is the path of the key at fault, `message` the text without it.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message if field is None else f"{field}: {message}")
        self.message = message
        self.field = field


class UnknownJob(CastorError):
    """No job of that name."""


class UnknownInstance(CastorError):
    """No instance of that id."""


class Conflict(CastorError):
    """What was asked does not go with the state that is: a name in use, a job that has ended."""


class NotAllowed(CastorError):
    """The token is missing, expired, used up, or does not cover what was asked."""


class StoreError(CastorError):
    """The store can't be opened or is not this version's."""


class LedgerError(CastorError):
    """The lines of the ledger contradict each other."""


class CheckpointError(CastorError):
    """A checkpoint can't be written or read."""


class DivergedError(CastorError, FloatingPointError):
    """A gradient or a weight became NaN or infinite, and training can't go on from it."""


class DeviceMemoryError(CastorError, MemoryError):
    """A device can't take the fewest examples that a rank may take at once."""


class MismatchError(CastorError, ValueError):
    """A replica differs from those it would train with."""


class SolverError(CastorError):
    """The solver found no plan. A coarser method is to be used."""


class CurveError(CastorError):
    """The reports of a trial make no learning curve, or more was asked of it than it can say."""


class ProviderError(CastorError):
    """A cloud said no. The subclasses say what kind of no."""


class InsufficientCapacity(ProviderError):
    """The cloud has none of it now. Another offer may do; the same one later."""


class QuotaExceeded(ProviderError):
    """The account may not have more of it. Waiting does not help."""


class Throttled(ProviderError):
    """Too many calls. The same call again after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class PermissionDenied(ProviderError):
    """The credentials do not allow it. A person has to act."""


class NotFound(ProviderError):
    """What was named does not exist, or no longer."""


class UnknownRefusal(ProviderError):
    """A refusal that Castor has no rule for. Nothing came of the call; another offer may do."""


class Unavailable(ProviderError):
    """The cloud did not answer, or not so that the outcome is known. Unknown is not 'no'."""
