"""Validated call of a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakes.gcp.discovery import Api, Method
from tests.fakes.gcp.project import Body, Operation, Project


@dataclass(frozen=True, slots=True)
class Call:
    """Input of a handler.

    Attributes:
        base: start of the API's links, without a slash at the end.
        failing: error code with which the call's operation is to fail; "" for none.
    """

    project: Project
    api: Api
    method: Method
    parameters: dict[str, Any]
    body: Body
    base: str
    failing: str = ""

    @property
    def root(self) -> str:
        """Start of the links to the project's resources."""
        return f"{self.base}/projects/{self.project.id}"


# An operation is converted to a body when the reply is written.
Handler = Callable[[Call], Body | Operation | None]
