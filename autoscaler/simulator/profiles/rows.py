"""Rows of CSV files with their positions, for error messages."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import printable, quoted

# Longest time that is accepted, far beyond any workload; more is an error and would never end.
MOST_SECONDS: Final = 10 * 365.25 * 86400.0
_LONGEST_HEADER: Final = 300
_LONGEST_COLUMN: Final = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its file, the line at which it ends, and its text by column."""

    path: Path
    line: int
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return the text of a column, without surrounding blanks.

        Raises:
            SpecError: the column is empty. The other methods raise it for invalid numbers too.
        """
        value = self.values[column].strip()
        if not value:
            raise self.error(column, "is empty")
        return value

    def finite(self, column: str) -> float:
        """Return a finite number."""
        return self._number(column)

    def positive(self, column: str) -> float:
        """Return a finite number above 0."""
        number = self._number(column)
        if number <= 0:
            raise self.error(column, f"{number:g} is not above 0")
        return number

    def not_negative(self, column: str) -> float:
        """Return a finite number of at least 0."""
        number = self._number(column)
        if number < 0:
            raise self.error(column, f"{number:g} is below 0")
        return number

    def moment(self, column: str) -> float:
        """Return seconds since the start, from 0 to ten years."""
        seconds = self.not_negative(column)
        if seconds > MOST_SECONDS:
            raise self.error(column, f"{seconds:g} s is more than ten years")
        return seconds

    def count(self, column: str) -> int:
        """Return a whole number of at least 1."""
        number = self.positive(column)
        if not number.is_integer():
            raise self.error(column, f"{number:g} is not a whole number")
        return int(number)

    def error(self, column: str, message: str) -> SpecError:
        """Return an error about a column of this row, for the caller to raise."""
        return SpecError(message, field=f"{self.place}: {printable(column)[:_LONGEST_COLUMN]}")

    @property
    def place(self) -> str:
        """File and line of the row."""
        return f"{self.path}:{self.line}"

    def _number(self, column: str) -> float:
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            raise self.error(column, f"{quoted(text)} is not a number") from None
        if not math.isfinite(number):
            raise self.error(column, f"{quoted(text)} is not finite")
        return number


def read_rows(path: Path, columns: Sequence[str]) -> list[Row]:
    """Read the rows of a CSV file whose header has `columns`, in any order, and maybe others.

    Raises:
        SpecError: the file can't be read, has no rows, is truncated, lacks a column, or a row has
            another number of fields than the header.
    """
    reader = csv.DictReader(io.StringIO(_whole_lines(path)), strict=True)
    try:
        _require_columns(path, reader.fieldnames or (), columns)
        rows = [Row(path, reader.line_num, values) for values in reader]
    except csv.Error as error:
        line = reader.reader.line_num
        raise SpecError(f"is not CSV: {error}", field=f"{path}:{line}") from None
    if not rows:
        raise SpecError("has no rows below its header", field=str(path))
    for row in rows:
        # The csv module keeps surplus fields under None and fills missing ones with None.
        if None in row.values or None in row.values.values():
            raise SpecError("has more or fewer fields than the header", field=f"{path}:{row.line}")
    return rows


def read_columns(path: Path, columns: Sequence[str]) -> list[Row]:
    """Read the rows of a tab-separated file without a header.

    Raises:
        SpecError: the file can't be read, is empty or truncated, or a row has another number of
            fields.
    """
    rows = []
    for line, text in enumerate(_whole_lines(path).splitlines(), start=1):
        fields = text.split("\t")
        if len(fields) != len(columns):
            message = f"has {len(fields)} fields between tabs, not {len(columns)}"
            raise SpecError(message, field=f"{path}:{line}")
        rows.append(Row(path, line, dict(zip(columns, fields, strict=True))))
    return rows


def text_of(path: Path) -> str:
    """Return the text of a file.

    Raises:
        SpecError: the file can't be read or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SpecError(f"can't be read: {error.strerror}: name a file", field=str(path)) from None
    except UnicodeDecodeError:
        raise SpecError("is not text in UTF-8", field=str(path)) from None
    if not text:
        raise SpecError("is empty", field=str(path))
    return text


def _whole_lines(path: Path) -> str:
    text = text_of(path)
    # A truncated number usually is a number still: only a missing newline reveals it.
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        message = "ends within a line: copy the file again, or end it with a newline"
        raise SpecError(message, field=f"{path}:{line}")
    return text


def _require_columns(path: Path, header: Sequence[str], columns: Sequence[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise SpecError(f"has the column {quoted(twice[0])} twice", field=f"{path}:1")
    missing = [name for name in columns if name not in header]
    if missing:
        names = quoted(", ".join(header), _LONGEST_HEADER)
        message = f"lacks the column {missing[0]}: it has {names}"
        raise SpecError(message, field=f"{path}:1")
