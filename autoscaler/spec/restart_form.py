"""Forms of `kind` and `restart` in a job file."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from autoscaler.domain.restart import (
    DEFAULT_GRACE_SECONDS,
    DEFAULT_WAIT_SECONDS,
    RestartSpec,
    progress_pattern,
)
from autoscaler.spec.forms import Form, obeys
from autoscaler.spec.quantities import Duration

_Text = Annotated[str, Field(min_length=1)]


def _require_progress(text: str, field: str) -> None:
    progress_pattern(text, field)


class JobKind(StrEnum):
    """Way in which a job is resized: by its session, or by restarts of its command."""

    SESSION = "session"
    RESTARTABLE = "restartable"


class RestartForm(Form):
    """Form of `restart`."""

    checkpoint: _Text
    grace: Duration = DEFAULT_GRACE_SECONDS
    wait: Duration = DEFAULT_WAIT_SECONDS
    progress: Annotated[_Text, obeys(_require_progress)] | None = None

    def spec(self) -> RestartSpec:
        """Return the restarts as a domain object."""
        return RestartSpec(self.checkpoint, self.grace, self.wait, self.progress)


def restart_problem(kind: JobKind, restart: RestartForm | None) -> str | None:
    """Return what is wrong with the combination of both keys; None if nothing is."""
    if kind is JobKind.RESTARTABLE and restart is None:
        return (
            "kind: restartable needs restart: name the files that the command saves, like "
            "restart: checkpoints/step-*"
        )
    if kind is JobKind.SESSION and restart is not None:
        return "restart needs kind: restartable: write it, or leave restart out"
    return None
