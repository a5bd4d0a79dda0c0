"""Contract of a notifier, which sends messages to one target, and of its options.

A notifier is registered under the name of its kind as an entry point of the group
`castor.notifiers`. A file of targets names it by the key `kind`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.notice import NoticeKind, UserNotice
from autoscaler.domain.text import printable
from autoscaler.spec.forms import Form, problems_of, refusal

AnyForm = TypeVar("AnyForm", bound=Form)

_MOST_SECRET_BYTES: Final = 4096
_OPEN_SECRETS: Final = frozenset({"secret", "password", "token", "key", "api_key"})
_TITLES: Final = {
    NoticeKind.FINISHED: "finished",
    NoticeKind.FAILED: "failed",
    NoticeKind.RETRIED: "failed and starts again",
    NoticeKind.STOPPED: "stopped",
    NoticeKind.STUDY: "study ended",
    NoticeKind.STALLED: "stalled",
    NoticeKind.BUDGET: "budget in danger",
    NoticeKind.DEADLINE: "deadline in danger",
    NoticeKind.LEAK: "leak suspected",
    NoticeKind.LEADER: "new leader",
    NoticeKind.TEST: "test",
}


class NotDelivered(CastorError):
    """Message that a target did not accept.

    It is sent again later, unless it `is_final`: the target will never accept it.
    `retry_after_seconds` is how long the target asks to wait; None: it does not.
    """

    def __init__(
        self, message: str, is_final: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(printable(message)[:500])
        self.is_final = is_final
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Message:
    """Notice as it is sent to a target.

    `id` is the same for each attempt, so that receivers can leave out repeats. `deployment` is the
    id of the controller's deployment, and `link` the page about the notice; None: there is none.
    """

    id: str
    notice: UserNotice
    deployment: str
    link: str | None = None

    @property
    def title(self) -> str:
        """Short line for a subject or a heading, such as `digits: failed`."""
        notice = self.notice
        return printable(f"{notice.job or notice.key.subject}: {_TITLES[notice.key.kind]}")[:150]

    @property
    def text(self) -> str:
        """Text of the notice as one printable line."""
        return printable(" ".join(self.notice.text.split()))


class NoticeSender(ABC):
    """Sender of messages to one target. Each has a thread of its own, and `send` may block."""

    @abstractmethod
    def send(self, message: Message, now_seconds: float) -> None:
        """Send a message; return once the target has accepted it.

        `now_seconds` is the time of this attempt, in seconds since the Unix epoch. A message may
        be sent twice, after a crash or a lost answer.

        Raises:
            NotDelivered: the target has not accepted it, as far as is known.
        """


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Keys of a target in its file, without those that all kinds have in common.

    Scalar values are texts; a `Form` converts them.
    Relative paths are in `folder`, that of the file of targets.
    """

    values: Mapping[str, Any]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def as_form(self, form: type[AnyForm]) -> AnyForm:
        """Return the options as a form.

        Raises:
            SpecError: they don't fit it, or one is a secret in clear; `field` is the key.
        """
        for key in self.values:
            if key in _OPEN_SECRETS:
                raise SpecError(
                    f"a secret must not be in this file: write it to a file of mode 0600 and name "
                    f"that as {key}_file, or put it into a variable of castor serve and name that "
                    f"as {key}_variable",
                    key,
                )
        try:
            return form.model_validate(dict(self.values))
        except ValidationError as error:
            raise refusal(problems_of(error, form)) from None

    def secret(self, key: str, file: str | None, variable: str | None) -> Secret:
        """Return the secret `key`, which the options `key_file` and `key_variable` name.

        Raises:
            SpecError: both or none is given, or there is no secret.
        """
        if (file is None) == (variable is None):
            raise SpecError(
                f"needs {key}_file, a file of mode 0600, or {key}_variable, a variable of castor "
                "serve, and not both",
                f"{key}_file",
            )
        path = None if file is None else (self.folder / file).expanduser()
        option = f"{key}_variable" if path is None else f"{key}_file"
        secret = Secret(option, path, variable, self.environment)
        secret.read()
        return secret


@dataclass(frozen=True, slots=True)
class Secret:
    """Secret in a file or an environment variable, read for each use, so that it can be renewed.

    `option` is the option that names it.
    """

    option: str
    path: Path | None
    variable: str | None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def read(self) -> str:
        """Return the secret without spaces and line breaks around it.

        Raises:
            SpecError: it can't be read, others than its owner may read it, or it is empty.
        """
        if self.path is None:
            text = self.environment.get(self.variable or "", "").strip()
            if not text:
                raise SpecError(f"the variable {self.variable} is not set", self.option)
            return text
        return _secret_in(self.path, self.option)


def _secret_in(path: Path, option: str) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise SpecError(f"{path} can be read by others: chmod 600 {path}", option)
        data = path.read_bytes()[: _MOST_SECRET_BYTES + 1]
        text = data.decode("ascii").strip()
    except OSError as error:
        raise SpecError(f"{path} can't be read: {error.strerror}", option) from None
    except UnicodeDecodeError:
        text = ""
    if not text or len(data) > _MOST_SECRET_BYTES:
        raise SpecError(f"{path} must have one secret in ASCII", option)
    return text
