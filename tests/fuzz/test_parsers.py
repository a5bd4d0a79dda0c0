"""Hostile texts for every parser of text from outside.

`pytest tests/fuzz --hypothesis-profile thorough` draws more of them.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import printable
from tests.fuzz.mutations import HOSTILE_TEXTS, variants
from tests.fuzz.parsers import PARSERS, Parser

MOST_CHARACTERS: Final = 4_000
# A sample that no parser accepts: a signature can't be made up.
_UNSIGNED: Final = "identity document of EC2"

each_parser = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


@each_parser
def test_the_sample_is_accepted(parser: Parser) -> None:
    if parser.name != _UNSIGNED:
        parser.parse(parser.sample)


def parse(parser: Parser, text: str) -> None:
    """Parse a text, and check the message of a refusal."""
    try:
        parser.parse(text)
    except parser.refusals as refusal:
        message = str(refusal)
        assert len(message) <= MOST_CHARACTERS, "a message does not repeat a long text"
        may_list = isinstance(refusal, SpecError)  # a line for each problem
        lines = message.split("\n") if may_list else [message]
        assert all(printable(line) == line for line in lines)


@each_parser
def test_a_hostile_text_instead_is_read_or_refused(parser: Parser) -> None:
    for text in HOSTILE_TEXTS:
        parse(parser, text)


@each_parser
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_hostile_variant_is_read_or_refused(parser: Parser, data: st.DataObject) -> None:
    parse(parser, data.draw(variants(parser.sample)))
