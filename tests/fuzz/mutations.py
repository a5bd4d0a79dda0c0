"""Hostile variants of valid texts, as Hypothesis strategies."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

HOSTILE_TEXTS: Final = (
    "",
    "\0",
    "\x1b[2J",
    "\r\n",
    "\u202e",
    "..",
    "../../victim",
    "NaN",
    "-Infinity",
    "1e999",
    "-1",
    "null",
    "[]",
    "{}",
    "'",
    '"',
    ":",
    ",",
    "9" * 5_000,
    "[" * 3_000,
    "{a: " * 300,
    "&a [*a, *a]",
    "!!python/object/apply:os.system [id]",
    "0x1F",
    "1_000",
    "é" * 300,
)
HOSTILE_VALUES: Final = (
    None,
    True,
    "",
    "x" * 5_000,
    "\x1b[2J\0\n",
    "NaN",
    float("nan"),
    float("inf"),
    -1,
    0,
    10**30,
    1e300,
    [],
    [[]],
    {},
    {"": {}},
)
_MOST_EDITS: Final = 3


@st.composite
def edited(draw: st.DrawFn, sample: str) -> str:
    """Draw a text in which up to three parts are removed, repeated or made hostile."""
    text = sample
    for _ in range(draw(st.integers(1, _MOST_EDITS))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 40)))
        replacement = draw(
            st.one_of(
                st.just(""),
                st.just(text[begin:end] * 2),
                st.sampled_from(HOSTILE_TEXTS),
                st.text(max_size=8),
            )
        )
        text = text[:begin] + replacement + text[end:]
    return text


@st.composite
def altered(draw: st.DrawFn, document: Any) -> Any:
    """Draw a document of lists and mappings in which one value is replaced, removed or added."""
    if not isinstance(document, dict | list) or not document or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(HOSTILE_VALUES))
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = draw(st.sampled_from(keys))
    changed = document.copy()
    match draw(st.sampled_from(("inside", "removed", "added"))):
        case "inside":
            changed[key] = draw(altered(document[key]))
        case "removed":
            del changed[key]
        case "added" if isinstance(changed, dict):
            changed[draw(st.text(max_size=20))] = document[key]
        case _:
            changed.append(document[key])
    return changed


def variants(sample: str) -> st.SearchStrategy[str]:
    """Return a strategy of variants of a text; of a JSON text also changed documents."""
    strategies = [edited(sample), st.text(max_size=200)]
    try:
        document = json.loads(sample)
    except ValueError:
        return st.one_of(strategies)
    return st.one_of(altered(document).map(json.dumps), *strategies)
