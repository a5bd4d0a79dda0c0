from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.text import did_you_mean, printable, printable_lines, quoted


def test_control_characters_are_shown_as_escape_sequences() -> None:
    assert printable("\x1b[2Jhi\r\n\x00\x9b\u202e") == r"\x1b[2Jhi\x0d\x0a\x00\x9b\u202e"
    assert printable("größer 東京 \N{GRINNING FACE}") == "größer 東京 \N{GRINNING FACE}"


def test_lines_keep_their_breaks_and_tabs_and_lose_their_colours() -> None:
    assert printable_lines("a\tb\n\x1b[1;31mred\x1b[0m\n") == "a\tb\nred\n"
    assert printable_lines(" 5%\r10%\r\ndone\n") == " 5%\n10%\ndone\n"
    assert printable_lines("\x1b]0;title\x07\x1b[2J") == r"\x1b]0;title\x07\x1b[2J"


def test_a_quoted_value_is_short_and_on_one_line() -> None:
    assert quoted("a\nb") == r'"a\x0ab"'
    assert quoted("x" * 100_000) == '"' + "x" * 60 + '..."'


@given(st.text(st.characters()))
def test_no_control_character_is_left(text: str) -> None:
    for shown in (printable(text), printable_lines(text).replace("\n", "")):
        categories = {unicodedata.category(character) for character in shown.replace("\t", "")}
        assert not categories & {"Cc", "Zl", "Zp", "Cs"}


def test_an_unknown_word_has_the_most_similar_ones_suggested() -> None:
    known = ["freeze", "unfreeze", "drain"]
    assert did_you_mean("freze", known, "look") == 'did you mean "freeze"?'
    assert did_you_mean("freze", known, "look", 2) == 'did you mean "freeze" or "unfreeze"?'
    assert did_you_mean("castor", known, "look") == "look"
    assert did_you_mean("", [], "look") == "look"
