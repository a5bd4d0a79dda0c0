"""One call of a method, read and found to be well-formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakes.gcp.discovery import Api, Method
from tests.fakes.gcp.project import Body, Operation, Project


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler gets. `base` is where links of the API begin, without a slash at the end;
    `failing` is the code that the operation is to fail with."""

    project: Project
    api: Api
    method: Method
    parameters: dict[str, Any]
    body: Body
    base: str
    failing: str = ""

    @property
    def root(self) -> str:
        """Where links to what is in the project begin."""
        return f"{self.base}/projects/{self.project.id}"


# An operation is told of as it is when the reply is written.
Handler = Callable[[Call], Body | Operation | None]
