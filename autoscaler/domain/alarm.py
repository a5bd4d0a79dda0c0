"""Alarms: conditions of a running job that its owner should know of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AlarmCode(StrEnum):
    """Machine-readable kind of an alarm."""

    MODEL_CONTRADICTED = "model-contradicted"


@dataclass(frozen=True, slots=True)
class ModelAlarm:
    """Step times outside the range that the job's throughput model predicts.

    Attributes:
        code: kind of the alarm.
        text: the alarm in words.
        since_seconds: time at which step times first left the range, since the epoch.
        measured_step_seconds: mean step time of the present configuration.
        predicted_step_seconds: step time that the model predicts for the configuration.
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
