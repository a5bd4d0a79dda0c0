"""Interpreter of the AWS module's state machine, which calls a fake EC2.

It knows the states and fields that the module uses, and refuses all others. Their rules are those
of https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html and
https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import jsonata
from botocore.exceptions import ClientError

_EXPRESSION: Final = re.compile(r"\{%(.*)%\}", re.DOTALL)
_RESULT_BYTES: Final = 256 * 1024
_TASK: Final = "arn:aws:states:::aws-sdk:ec2:"
_COMMON: Final = {"Type", "Next", "End", "Assign", "Output"}
_FIELDS: Final[Mapping[str, set[str]]] = {
    "Choice": {"Type", "Choices", "Default"},
    "Fail": {"Type", "Error", "Cause"},
    "Map": _COMMON | {"Items", "ItemProcessor"},
    "Pass": _COMMON,
    "Succeed": {"Type"},
    "Task": _COMMON | {"Resource", "Arguments", "Retry", "Catch"},
}


class ExecutionFailed(Exception):
    """End of an execution, or of a task, with an error."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(f"{error}: {cause}")
        self.error = error
        self.cause = cause


@dataclass
class StateMachine:
    """State machine of a definition in JSON, whose tasks call `ec2`.

    `began` is the time at which executions start, in seconds since the epoch. `variables` are
    those of the last execution.
    """

    definition: str
    ec2: Any
    began: float
    variables: dict[str, Any] = field(default_factory=dict)

    def run(self, argument: Mapping[str, Any]) -> None:
        """Run one execution.

        Raises:
            ExecutionFailed: the execution failed.
        """
        machine = json.loads(self.definition)
        assert machine.keys() == {"Comment", "QueryLanguage", "StartAt", "States"}
        assert machine["QueryLanguage"] == "JSONata"
        self.variables = {}
        self._run(machine, dict(argument), self.variables)

    def _run(self, machine: Mapping[str, Any], data: Any, variables: dict[str, Any]) -> Any:
        name = machine["StartAt"]
        while True:
            state = machine["States"][name]
            assert state.keys() <= _FIELDS[state["Type"]], f"{name}: {state.keys()}"
            name, data = self._step(state, data, variables)
            if name is None:
                return data

    def _step(
        self, state: Mapping[str, Any], data: Any, variables: dict[str, Any]
    ) -> tuple[str | None, Any]:
        """Return the name of the next state, None at the end, and the state's output."""
        evaluate = self._evaluator(variables, {"input": data})
        match state["Type"]:
            case "Succeed":
                return None, data
            case "Fail":
                raise ExecutionFailed(state["Error"], evaluate(state["Cause"]))
            case "Choice":
                chosen = (
                    choice["Next"] for choice in state["Choices"] if evaluate(choice["Condition"])
                )
                return next(chosen, state["Default"]), data
            case "Pass":
                result = data
            case "Map":
                processor = state["ItemProcessor"]
                assert processor.keys() == {"ProcessorConfig", "StartAt", "States"}
                items = evaluate(state["Items"])
                assert isinstance(items, list)
                result = [self._run(processor, item, dict(variables)) for item in items]
            case "Task":
                try:
                    result = self._tried(state, evaluate(state["Arguments"]))
                except ExecutionFailed as failure:
                    return self._caught(state, data, variables, failure)
        evaluate = self._evaluator(variables, {"input": data, "result": result})
        output = evaluate(state["Output"]) if "Output" in state else result
        variables |= {name: evaluate(value) for name, value in state.get("Assign", {}).items()}
        assert ("Next" in state) != ("End" in state)
        return state.get("Next"), output

    def _tried(self, state: Mapping[str, Any], arguments: Any) -> Any:
        """Return the result of a task, repeated without a pause as `Retry` says."""
        attempts = sum(retrier["MaxAttempts"] for retrier in state.get("Retry", ()))
        for attempt in range(attempts + 1):
            try:
                return self._call(state["Resource"], arguments)
            except ExecutionFailed:
                if attempt == attempts:
                    raise
        raise AssertionError("a task has at least one attempt")

    def _call(self, resource: str, arguments: dict[str, Any]) -> Any:
        action = resource.removeprefix(_TASK)
        calls: dict[str, Callable[..., Any]] = {
            "describeInstances": self.ec2.describe_instances,
            "terminateInstances": self.ec2.terminate_instances,
        }
        try:
            reply = calls[action](**arguments)
        except ClientError as error:
            message = error.response["Error"]["Message"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            cause = f"{message} (Service: Ec2, Status Code: {status})"
            raise ExecutionFailed("Ec2.Ec2Exception", cause) from error
        del reply["ResponseMetadata"]
        text = json.dumps(reply, default=_moment)
        if len(text) > _RESULT_BYTES:
            raise ExecutionFailed("States.DataLimitExceeded", f"{len(text)} bytes")
        return json.loads(text)

    def _caught(
        self,
        state: Mapping[str, Any],
        data: Any,
        variables: dict[str, Any],
        failure: ExecutionFailed,
    ) -> tuple[str, Any]:
        if "Catch" not in state or failure.error == "States.DataLimitExceeded":
            raise failure
        (catcher,) = state["Catch"]
        assert catcher.keys() == {"ErrorEquals", "Output", "Next"}
        assert catcher["ErrorEquals"] == ["States.ALL"]
        error = {"Error": failure.error, "Cause": failure.cause}
        evaluate = self._evaluator(variables, {"input": data, "errorOutput": error})
        return catcher["Next"], evaluate(catcher["Output"])

    def _evaluator(
        self, variables: Mapping[str, Any], states: Mapping[str, Any]
    ) -> Callable[[Any], Any]:
        """Return a function that replaces the expressions in a value by their values."""
        start = datetime.fromtimestamp(self.began, UTC)
        context = {"Execution": {"StartTime": _moment(start)}}
        known = {**variables, "states": {**states, "context": context}}

        def evaluate(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: evaluate(inner) for key, inner in value.items()}
            if isinstance(value, list):
                return [evaluate(inner) for inner in value]
            match = _EXPRESSION.fullmatch(value) if isinstance(value, str) else None
            return value if match is None else _evaluated(match[1], known)

        return evaluate


def _evaluated(text: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of an expression, which Step Functions requires to have one."""
    try:
        expression = jsonata.Jsonata(text)
        frame = expression.create_frame()
        for name, value in variables.items():
            frame.bind(name, value)
        result = expression.evaluate(None, frame)
    except jsonata.JException as error:
        raise ExecutionFailed("States.QueryEvaluationError", str(error)) from error
    if result is None:
        raise ExecutionFailed("States.QueryEvaluationError", f"no value: {text}")
    return result


def _moment(value: datetime) -> str:
    """Return a time as results of Step Functions have it."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
