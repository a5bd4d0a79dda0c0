"""Filters of lists: comparisons after AIP-160, or regular expressions with `eq` and `ne`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from tests.fakes.gcp.errors import Refusal, invalid

Test = Callable[[dict[str, Any]], bool]
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<mark>[()]|!=|>=|<=|=|>|<|:)
        |"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'
        |(?P<word>[^\s()=!<>:"']+))""",
    re.VERBOSE,
)
_ORDERS: Final = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_EXPRESSIONS: Final = ("eq", "ne")
_OPERATORS: Final = ("=", "!=", ":", *_ORDERS, *_EXPRESSIONS)
_MISSING: Final = object()


def parse_filter(text: str, has_field: Callable[[str], bool]) -> Test:
    """Return the predicate of a filter; `has_field` says whether listed items have a field.

    Raises:
        Refusal: the filter is malformed or names an unknown field.
    """
    if not text.strip():
        return lambda _: True
    return _Parser(text, has_field).whole()


class _Parser:
    def __init__(self, text: str, has_field: Callable[[str], bool]) -> None:
        self._text = text
        self._has_field = has_field
        self._tokens = self._split(text)
        self._used: set[bool] = set()

    def whole(self) -> Test:
        test = self._sequence()
        if self._tokens:
            raise self._refusal()
        if len(self._used) > 1:
            raise self._refusal("eq and ne can't stand beside other operators.")
        return test

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._refusal()
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind]))
            position = match.end()
        return tokens

    def _sequence(self) -> Test:
        """Parse terms that must all hold. OR binds more closely."""
        tests = [self._choice()]
        while self._tokens and self._tokens[0] != ("mark", ")"):
            if self._tokens[0] == ("word", "AND"):
                self._tokens.pop(0)
            tests.append(self._choice())
        return lambda item: all(test(item) for test in tests)

    def _choice(self) -> Test:
        tests = [self._term()]
        while self._tokens and self._tokens[0] == ("word", "OR"):
            self._tokens.pop(0)
            tests.append(self._term())
        return lambda item: any(test(item) for test in tests)

    def _term(self) -> Test:
        kind, text = self._next()
        if (kind, text) == ("word", "NOT"):
            test = self._term()
            return lambda item: not test(item)
        if (kind, text) == ("mark", "("):
            test = self._sequence()
            if self._next() != ("mark", ")"):
                raise self._refusal()
            return test
        if kind != "word":
            raise self._refusal()
        return self._comparison(text)

    def _comparison(self, path: str) -> Test:
        if not self._has_field(path):
            raise self._refusal(f"There is no field {path}.")
        _, sign = self._next()
        if sign not in _OPERATORS:
            raise self._refusal()
        kind, wanted = self._next()
        if kind == "mark":
            raise self._refusal()
        self._used.add(sign in _EXPRESSIONS)
        return _comparison_test(path, sign, re.sub(r"\\(.)", r"\1", wanted))

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise self._refusal()
        return self._tokens.pop(0)

    def _refusal(self, why: str = "") -> Refusal:
        return invalid("filter", self._text, f"Invalid list filter expression. {why}".strip())


def _comparison_test(path: str, sign: str, wanted: str) -> Test:
    def test(item: dict[str, Any]) -> bool:
        held = _value(item, path)
        if sign in ("ne", "!="):
            return not _is_equal(held, "eq" if sign == "ne" else "=", wanted)
        if sign in _ORDERS:
            return held is not _MISSING and bool(_ORDERS[sign](*_comparable(_text(held), wanted)))
        return _is_equal(held, sign, wanted)

    return test


def _is_equal(held: Any, sign: str, wanted: str) -> bool:
    if held is _MISSING:
        return False
    match sign:
        case "eq":
            return re.fullmatch(wanted, _text(held)) is not None
        case ":" if wanted == "*":
            return held not in (None, "", {}, [])
        case ":" if isinstance(held, dict | list):
            return wanted in held
        case ":":
            return wanted.casefold() in _text(held).casefold()
    return _text(held) == wanted


def _value(item: Any, path: str) -> Any:
    """Return the value at a path of names with dots; a label's name contains no dot."""
    for name in path.split("."):
        if not isinstance(item, dict) or name not in item:
            return _MISSING
        item = item[name]
    return item


def _text(held: Any) -> str:
    return str(held).lower() if isinstance(held, bool) else str(held)


def _comparable(*texts: str) -> list[Any]:
    """Return the texts as numbers or as times, if all can be read so."""
    for read in (float, datetime.fromisoformat):
        try:
            return [read(text) for text in texts]
        except ValueError:
            continue
    return list(texts)
