"""User data of an instance's launch: the address of its controller, and its join token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.wire.codec import decode


@dataclass(frozen=True, slots=True)
class UserData:
    """URL of the controller, join token for a single use, and id of the instance.

    `authority` has the only certificates to trust, as PEM; None: those of the system.
    """

    controller: str
    join_token: str
    instance: str
    authority: str | None = None


def parse_user_data(text: str) -> UserData:
    """Return the user data in `text`.

    Raises:
        SpecError: the text is not user data; the message names the first wrong field.
    """
    user_data = decode(UserData, text)
    if not user_data.controller.startswith(("http://", "https://")):
        raise SpecError(
            f"{quoted(user_data.controller)} is not a URL: expected http://HOST:PORT", "controller"
        )
    return user_data


def load_user_data(path: Path) -> UserData:
    """Return the user data in the file `path`.

    Raises:
        SpecError: the file can't be read, or is not user data.
    """
    try:
        return parse_user_data(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SpecError(f"{path}: {reason}: name the file that the provider wrote") from error
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
