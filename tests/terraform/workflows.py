"""Interpreter of the module's workflows for Google's Workflows, against a fake Compute Engine.

Steps are `call`, `for` and `try`. Expressions consist of maps, lists, texts and the functions
below. An unknown step, key or function fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import requests

from tests.fakes.gcp.server import FakeGcp

_EXPRESSION: Final = re.compile(r"\$\{(.*)\}", re.DOTALL)
_STEP_KEYS: Final = frozenset({"call", "args", "result", "for", "try", "except"})


class Failure(Exception):
    """Error that a call raises and a step may catch."""


class Map(dict[str, Any]):
    """Map whose keys are also attributes."""

    def __getattribute__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)


class Workflow:
    """Workflow in JSON; `logged` holds its log lines."""

    def __init__(self, source: str, fake: FakeGcp) -> None:
        self._main = json.loads(source)["main"]
        self._url = f"{fake.url}/compute/v1/projects"
        self.logged: list[str] = []

    def run(self, argument: Mapping[str, Any]) -> None:
        (parameter,) = self._main["params"]
        self._steps(self._main["steps"], {parameter: _mapped(argument)})

    def _steps(self, steps: list[dict[str, Any]], scope: dict[str, Any]) -> None:
        for named in steps:
            (step,) = named.values()
            self._step(step, scope)

    def _step(self, step: dict[str, Any], scope: dict[str, Any]) -> None:
        assert step.keys() <= _STEP_KEYS, step.keys()
        if "for" in step:
            loop = step["for"]
            for value in _value(loop["in"], scope):
                self._steps(loop["steps"], {**scope, loop["value"]: value})
        elif "try" in step:
            try:
                self._step(step["try"], scope)
            except Failure as error:
                caught = {**scope, step["except"]["as"]: _mapped(error.args[0])}
                self._steps(step["except"]["steps"], caught)
        else:
            arguments = {key: _value(text, scope) for key, text in step["args"].items()}
            outcome = self._calls[step["call"]](arguments)
            if "result" in step:
                scope[step["result"]] = _mapped(outcome)

    @property
    def _calls(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "googleapis.compute.v1.instances.aggregatedList": self._list,
            "googleapis.compute.v1.instances.delete": self._delete,
            "sys.log": lambda arguments: self.logged.append(arguments["text"]),
        }

    def _list(self, arguments: dict[str, Any]) -> Any:
        project = arguments.pop("project")
        url = f"{self._url}/{project}/aggregated/instances"
        return _answer(requests.get(url, params=arguments, timeout=5))

    def _delete(self, arguments: dict[str, Any]) -> Any:
        assert arguments.pop("connector_params") == {"skip_polling": True}
        place = "{project}/zones/{zone}/instances/{instance}".format(**arguments)
        return _answer(requests.delete(f"{self._url}/{place}", timeout=5))


def _answer(reply: requests.Response) -> Any:
    if not reply.ok:
        raise Failure({"code": reply.status_code, "body": reply.json()})
    return reply.json()


def _value(text: Any, scope: Mapping[str, Any]) -> Any:
    expression = _EXPRESSION.fullmatch(text) if isinstance(text, str) else None
    if expression is None:
        return text
    functions = {
        "default": lambda value, other: other if value is None else value,
        "json": SimpleNamespace(encode_to_string=json.dumps),
        "keys": list,
        "map": SimpleNamespace(get=dict.get),
        "text": SimpleNamespace(replace_all=str.replace),
        "__builtins__": {},
    }
    return eval(expression[1], functions, dict(scope))


def _mapped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Map({key: _mapped(held) for key, held in value.items()})
    return [_mapped(held) for held in value] if isinstance(value, list) else value
