"""What a trial's worker and the driver of its study say to each other, as texts.

A call names a method and its arguments; its answer is a value, or the error that the worker's
objective is to see. Both are JSON in Python's form, which has words for NaN and the infinities.
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
class Call:
    """A method and its arguments, which JSON can say.

    `trial` is the number of the trial that the call is about; None where a worker does not know it
    yet, as it begins the trial of its job.
    """

    method: str
    arguments: dict[str, Any]
    trial: int | None = None

    def text(self) -> str:
        """As it travels.

        Raises:
            TypeError: an argument is nothing that JSON can say.
        """
        return json.dumps([self.method, self.arguments, self.trial])


def failure(cause: str, error: Exception | None = None) -> Call:
    """The end of a trial that failed, by an error of its objective's or without one."""
    kinds = () if error is None else type(error).__mro__
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    end = {"state": "FAIL", "values": None, "cause": cause, "error_kinds": names}
    return Call(END, end)


def read_call(text: str) -> Call:
    """The call that a text is.

    Raises:
        ValueError: it is none.
    """
    method, arguments, *trial = json.loads(text)
    return Call(str(method), dict(arguments), trial[0] if trial else None)


def answer_text(value: object) -> str:
    """The answer that is this value."""
    return json.dumps({"value": value})


def refusal_text(error: Exception) -> str:
    """The answer that is this error."""
    return json.dumps({"error": type(error).__name__, "message": str(error)})


def read_answer(text: str) -> Any:
    """The value that was answered.

    Raises:
        Exception: the error that was answered instead, of its type if Python or Optuna has it.
    """
    answer = json.loads(text)
    if "error" not in answer:
        return answer["value"]
    name, message = answer["error"], answer["message"]
    for room in (builtins, optuna.exceptions):
        kind = getattr(room, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            raise kind(message)
    raise RuntimeError(f"{name}: {message}")
