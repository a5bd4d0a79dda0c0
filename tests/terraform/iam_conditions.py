"""What IAM of Google Cloud finds of a condition, as its documentation has it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A text in a condition."""

    text: str

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, Text) else other)

    def __hash__(self) -> int:
        return hash(self.text)

    def startsWith(self, start: str) -> bool:
        return self.text.startswith(start)

    def extract(self, template: str) -> Text:
        """What stands in the place of the one {name}: up to what follows it, or to the end."""
        before, after = re.split(r"\{\w+\}", template)
        _, found, rest = self.text.partition(before)
        value, ends, _ = rest.partition(after) if after else (rest, "end", "")
        return Text(value if found and ends else "")


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
    """What IAM finds of a condition that is about this resource."""
    expression = condition.replace("&&", "and").replace("||", "or")
    return bool(eval(expression, {"resource": Resource(kind, Text(name)), "api": Asked(prefix)}))
