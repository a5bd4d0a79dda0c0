"""Requests of a trial's worker and responses of the study's driver, as JSON texts.

A request names a method and its arguments. Its response holds a value, or the error that the
objective receives. NaN and the infinities are written as Python's `json` writes them.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from typing import Any, Final

import optuna

BEGIN: Final = "begin"
SUGGEST: Final = "suggest"
REPORT: Final = "report"
SHOULD_PRUNE: Final = "should_prune"
SET_USER_ATTR: Final = "set_user_attr"
SET_CONSTRAINT: Final = "set_constraint"
SET_SCORES: Final = "set_scores"
STOP_STUDY: Final = "stop_study"
READ_STUDY: Final = "read_study"
ARTIFACT: Final = "artifact"
END: Final = "end"


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """Request of a worker: a method and its JSON arguments.

    `trial` is the number of the trial; None while the worker does not know it, in `begin`.
    """

    method: str
    arguments: dict[str, Any]
    trial: int | None = None

    def text(self) -> str:
        """Return the request as JSON.

        Raises:
            TypeError: an argument can't be written as JSON.
        """
        return json.dumps([self.method, self.arguments, self.trial])


def failure_request(cause: str, error: Exception | None = None) -> TrialRequest:
    """Return the `end` request of a failed trial, with the classes of its error if any."""
    kinds = () if error is None else type(error).__mro__
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    end = {"state": "FAIL", "values": None, "cause": cause, "error_kinds": names}
    return TrialRequest(END, end)


def parse_request(text: str) -> TrialRequest:
    """Parse a request.

    Raises:
        ValueError: the text is no request.
    """
    method, arguments, *trial = json.loads(text)
    return TrialRequest(str(method), dict(arguments), trial[0] if trial else None)


def answer_text(value: object) -> str:
    """Return the response that holds a value."""
    return json.dumps({"value": value})


def error_text(error: Exception) -> str:
    """Return the response that holds an error."""
    return json.dumps({"error": type(error).__name__, "message": str(error)})


def parse_answer(text: str) -> Any:
    """Return the value of a response.

    Raises:
        Exception: the response holds an error. It is raised as the class of Python or Optuna of
            that name, else as RuntimeError.
    """
    answer = json.loads(text)
    if "error" not in answer:
        return answer["value"]
    name, message = answer["error"], answer["message"]
    for namespace in (builtins, optuna.exceptions):
        error_class = getattr(namespace, name, None)
        if isinstance(error_class, type) and issubclass(error_class, Exception):
            raise error_class(message)
    raise RuntimeError(f"{name}: {message}")
