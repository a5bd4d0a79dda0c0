"""Work of an instance's script while it makes no step, as its agent sees it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.rules import LONGEST_SECONDS, require_count, require_line, require_number

STALL: Final = "stall"
"""Kind of the event that says why a job seems not to learn."""
_LONGEST_PHASE: Final = 60
_MOST_STEPS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Activity:
    """Work of a script that has made no step for a while.

    Attributes:
        quiet_seconds: time since the last step, or since the start of a script without a step.
        steps: steps of this start; None for a script without a session.
        step_seconds: median time of its recent steps; None before there are several.
        phase: name of the phase that the script declared, such as evaluation; None without one.
        phase_seconds: time until the declared end of that phase, below 0 after it.
        idle_seconds: time for which the script's devices have done next to nothing; None: unknown.
        waits_for_others: whether a sum with the job's other instances has failed since the last
            step, so that this one waits for them.
    """

    quiet_seconds: float
    steps: int | None = None
    step_seconds: float | None = None
    phase: str | None = None
    phase_seconds: float | None = None
    idle_seconds: float | None = None
    waits_for_others: bool = False

    @property
    def is_in_phase(self) -> bool:
        """Whether the script is in a phase that it declared, before its declared end."""
        return self.phase_seconds is not None and self.phase_seconds >= 0

    @property
    def text(self) -> str:
        """The activity as text, for `activity_of`."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(known)


def activity_of(text: str) -> Activity:
    """Return an activity from its text.

    Raises:
        ValueError: the text is malformed.
    """
    try:
        values: dict[str, Any] = json.loads(text)
        names = {field.name for field in fields(Activity)}
        activity = Activity(**{name: value for name, value in values.items() if name in names})
        require_activity(activity)
    except (TypeError, AttributeError, SpecError) as error:
        raise ValueError(f"not an activity: {text}") from error
    return activity


def require_activity(activity: Activity) -> None:
    """Check the values of an activity.

    Raises:
        SpecError: a value is out of its range; the message has its field.
    """
    require_number(activity.quiet_seconds, "activity.quiet_seconds", 0.0, LONGEST_SECONDS)
    if activity.steps is not None:
        require_count(activity.steps, "activity.steps", _MOST_STEPS, least=0)
    if activity.phase is not None:
        require_line(activity.phase, "activity.phase", _LONGEST_PHASE)
    least_seconds = {"step_seconds": 0.0, "phase_seconds": -LONGEST_SECONDS, "idle_seconds": 0.0}
    for name, least in least_seconds.items():
        value = getattr(activity, name)
        if value is not None:
            require_number(value, f"activity.{name}", least, LONGEST_SECONDS)


def phase_name(name: object, seconds: object) -> tuple[str, float]:
    """Return the checked name and longest time in seconds of a phase.

    Raises:
        ValueError: the name is no text of up to 60 letters on one line, or the time not above 0.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_PHASE:
        raise ValueError(f"a phase needs a name of up to {_LONGEST_PHASE} letters, not {name!r}")
    if not name.isprintable():
        raise ValueError(f"the name of a phase is one line of printable letters, not {name!r}")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < float(seconds) <= LONGEST_SECONDS or math.isnan(float(seconds)):  # type: ignore[arg-type]
        raise ValueError(
            f"phase {name!r} needs a longest time in seconds above 0 and up to "
            f"{LONGEST_SECONDS:g}, not {seconds!r}"
        )
    return name, float(seconds)  # type: ignore[arg-type]
