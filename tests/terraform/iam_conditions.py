"""Evaluation of IAM conditions of Google Cloud, after their documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """Text in a condition."""

    text: str

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, Text) else other)

    def __hash__(self) -> int:
        return hash(self.text)

    def startsWith(self, start: str) -> bool:
        return self.text.startswith(start)

    def extract(self, template: str) -> Text:
        """Return the text at the one {name} of a template.

        It ends at the template's following text, or at the end of the text.
        """
        before, after = re.split(r"\{\w+\}", template)
        _, separator, rest = self.text.partition(before)
        value, end, _ = rest.partition(after) if after else (rest, "end", "")
        return Text(value if separator and end else "")


@dataclass(frozen=True)
class Resource:
    type: str
    name: Text


@dataclass(frozen=True)
class Asked:
    prefix: str

    def getAttribute(self, name: str, default: str) -> Text:
        assert name == "storage.googleapis.com/objectListPrefix"
        return Text(self.prefix or default)


def holds(condition: str, kind: str, name: str, prefix: str = "") -> bool:
    """Return whether IAM finds a condition true for this resource."""
    expression = condition.replace("&&", "and").replace("||", "or")
    return bool(eval(expression, {"resource": Resource(kind, Text(name)), "api": Asked(prefix)}))
