"""Outside text: control characters as escape sequences for printing, and parsing of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

_LONGEST_QUOTE: Final = 60
# C0 and C1 controls, DEL, line separators, direction overrides and lone surrogates.
_CONTROLS: Final = (
    "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
)
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")
_CONTROL_IN_LINE: Final = re.compile(f"(?!\t)[{_CONTROLS}]")
_CONTROL_IN_LINES: Final = re.compile(f"(?![\n\t])[{_CONTROLS}]")
_COLOUR: Final = re.compile("\x1b\\[[0-9;:]*m")
_CARRIAGE_RETURN: Final = re.compile("\r+\n?")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text of unknown origin.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None


def has_controls(text: str) -> bool:
    """Return whether a text contains a control character or a line break."""
    return _CONTROL.search(text) is not None


def printable(text: str) -> str:
    """Return one line of text with control characters except tabs as escape sequences."""
    return _CONTROL_IN_LINE.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """Return text whose control characters can't affect a terminal.

    Line feeds and tabs stay. A carriage return begins a new line. Colour codes are removed, and
    every other control character becomes an escape sequence.
    """
    return _CONTROL_IN_LINES.sub(_escaped, _COLOUR.sub("", _CARRIAGE_RETURN.sub("\n", text)))


def quoted(value: object, longest: int = _LONGEST_QUOTE) -> str:
    """Return a value in quotes for an error message: one printable line, shortened."""
    text = printable(str(value)[: longest + 1])
    return f'"{text[:longest]}..."' if len(text) > longest else f'"{text}"'


def did_you_mean(word: str, known: Iterable[str], otherwise: str, most: int = 1) -> str:
    """Return a question for the words most similar to one that is not known.

    Args:
        word: the unknown word.
        known: all words that are known.
        otherwise: text to return if none of them is similar.
        most: greatest number of words to suggest.
    """
    from difflib import get_close_matches  # which few commands need

    similar = get_close_matches(word, known, n=most)
    return f"did you mean {' or '.join(map(quoted, similar))}?" if similar else otherwise


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
