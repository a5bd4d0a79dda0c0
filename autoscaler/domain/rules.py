"""Validation of single values from a file or a request.

Each rule raises a `SpecError` that names the field, the value and a valid alternative.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls, quoted

MOST_USD: Final = 1e9
LATEST_SECONDS: Final = 253_402_300_799.0  # the last second of the year 9999
LONGEST_SECONDS: Final = 366 * 86_400.0

LONGEST_PATH_NAME: Final = 255
"""Most characters of one name in a path of the API, as of a file in Linux. No name is longer."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_UNENCODABLE: Final = re.compile("[\0\ud800-\udfff]")  # NUL, surrogates
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_IMAGE: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:/@\[\]+-]{0,499}")


def require_name(value: str, field: str) -> None:
    """Check the name of a job, a program or a study."""
    if not _NAME.fullmatch(value):
        wanted = "write 1 to 40 of a-z, 0-9 and -, no - first"
        raise SpecError(f"{quoted(value)} is not a valid name: {wanted}", field)


def require_variable(value: str, field: str) -> None:
    """Check the name of an environment variable."""
    if not _VARIABLE.fullmatch(value):
        # The message omits the value, which may be a misplaced secret.
        raise SpecError(
            "is not a valid variable name: use letters, digits and _, no digit first", field
        )


def require_sha256(value: str, field: str | None = None) -> None:
    """Check the hexadecimal SHA-256 of a file."""
    if not _SHA256.fullmatch(value):
        raise SpecError(f"{quoted(value)} is not a SHA-256: write 64 of 0-9 and a-f", field)


def require_image(value: str, field: str) -> None:
    """Check the reference of a container image."""
    if not _IMAGE.fullmatch(value):
        raise SpecError(
            f"{quoted(value)} is not a valid image: write one like registry/name:tag", field
        )


def require_word(value: str, field: str, longest: int) -> None:
    """Check a process argument or the value of an environment variable."""
    if len(value) > longest or _UNENCODABLE.search(value):
        raise SpecError(
            f"{quoted(value)} must be at most {longest:,} characters of Unicode, none of them NUL",
            field,
        )


def require_unicode(value: str, field: str) -> None:
    """Check a text that is sent to a controller."""
    if _SURROGATE.search(value):
        raise SpecError(f"{quoted(value)} must be Unicode: write it in UTF-8", field)


def require_path_name(value: str, field: str) -> None:
    """Check a name in a path of the API, whatever it names."""
    if not value:
        raise SpecError("must not be empty: write a name", field)
    if value in (".", "..") or "/" in value or has_controls(value):
        raise SpecError(
            f"{quoted(value)} can't be a name: write one without / and control characters, "
            "other than . and ..",
            field,
        )
    if len(value) > LONGEST_PATH_NAME:
        raise SpecError(
            f"{quoted(value)} is too long: a name has at most {LONGEST_PATH_NAME} characters",
            field,
        )


def require_line(value: str, field: str, longest: int = 200) -> None:
    """Check a printable text of one line."""
    if not value or len(value) > longest or has_controls(value):
        raise SpecError(
            f"{quoted(value)} must be 1 to {longest:,} characters, no control characters", field
        )


def require_count(value: int, field: str, most: int, least: int = 1) -> None:
    """Check an integer between `least` and `most`."""
    if value < least:
        raise SpecError(f"must be at least {least}, not {quoted(value)}", field)
    if value > most:
        raise SpecError(f"must be at most {most}, not {quoted(value)}", field)


def require_positive(value: float | Decimal, field: str, most: float) -> None:
    """Check a finite number above 0 and at most `most`."""
    number = float(value)
    if not (math.isfinite(number) and 0 < number <= most):
        raise SpecError(
            f"must be a number above 0 and at most {most:g}, not {quoted(value)}", field
        )


def require_amount(usd: float | Decimal, field: str, most: float = MOST_USD) -> None:
    """Check an amount of US dollars above 0 and at most `most`."""
    if math.isnan(usd) or usd <= 0:
        raise SpecError(no_amount(usd), field)
    if usd > most:
        raise SpecError(large_amount(usd, most), field)


def no_amount(value: object) -> str:
    """Return the error message for a value that is not an amount above $0."""
    return f"{quoted(value)} is not an amount above $0: write it like 40 or $0.50"


def large_amount(value: object, most: float = MOST_USD) -> str:
    """Return the error message for an amount of US dollars above the maximum."""
    return f"{quoted(value)} is too large: write at most ${most:,.0f}"


def require_number(value: float, field: str, least: float, most: float) -> None:
    """Check a finite number from `least` to `most`."""
    if not (math.isfinite(value) and least <= value <= most):
        raise SpecError(f"must be a number from {least:g} to {most:g}, not {quoted(value)}", field)


def require_at_most(count: int, field: str, most: int) -> None:
    """Check the number of entries of a list or a mapping."""
    if count > most:
        raise SpecError(f"has {count:,} entries: write at most {most:,}", field)
