"""Alarms: conditions of a running job that its owner should know of, although it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AlarmCode(StrEnum):
    """Kind of an alarm, for programs that read it."""

    MODEL_CONTRADICTED = "model-contradicted"


@dataclass(frozen=True, slots=True)
class ModelAlarm:
    """Step times that are outside the range which the job's model predicts for them.

    Attributes:
        code: kind of the alarm.
        text: the alarm in words.
        since_seconds: when step times were first seen outside the range.
        measured_step_seconds: mean step time of the present configuration.
        predicted_step_seconds: step time that the model predicts for it.
        least_step_seconds: lower end of the central 90 % of the prediction.
        most_step_seconds: upper end of the central 90 % of the prediction.
    """

    code: AlarmCode
    text: str
    since_seconds: float
    measured_step_seconds: float
    predicted_step_seconds: float
    least_step_seconds: float
    most_step_seconds: float
