from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls
from autoscaler.wire.codec import decode, decode_printable, encode
from autoscaler.wire.messages import CostView, EventView, NodeReply, Wanted


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.1, 1e300])
def test_every_float_comes_back(value: float) -> None:
    event = EventView(value, None, "kind", "text")
    assert decode(EventView, encode(EventView, event)) == event


def test_infinities_and_nan_are_strings_of_sound_json() -> None:
    text = encode(tuple[float, ...], (math.inf, math.nan))
    assert json.loads(text) == ["Infinity", "NaN"]
    assert math.isnan(decode(tuple[float, ...], text)[1])


def test_money_keeps_its_digits() -> None:
    view = CostView(Decimal("1.10"), Decimal("0"), {"job": Decimal("1.10")}, {}, {})
    assert str(decode(CostView, encode(CostView, view)).by_job["job"]) == "1.10"


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(SpecError, match="at_seconds"):
        decode(EventView, b'{"job": null, "kind": "kind", "text": "text"}')


def test_older_and_newer_ends_understand_each_other() -> None:
    reply = NodeReply(Wanted.RUN, 1, None, 1, 60.0)
    fields = json.loads(encode(NodeReply, reply))
    del fields["checkpoint_interval_seconds"]
    assert decode(NodeReply, json.dumps(fields)) == reply, "of an older controller"
    fields["of_a_later_version"] = 7
    assert decode(NodeReply, json.dumps(fields)) == reply, "of a newer one"


def test_what_people_see_holds_no_control_characters() -> None:
    event = EventView(1.0, "job", "note", "\x1b[2Jgone\n\u202e\x9b\x7f")
    shown = decode_printable(EventView, encode(EventView, event))
    assert shown == replace(event, text=r"\x1b[2Jgone\x0a\u202e\x9b\x7f")
    plain = replace(event, text='größer "東京" \\ \N{EURO SIGN}\tok')
    assert decode_printable(EventView, encode(EventView, plain)) == plain
    costs = decode_printable(dict[str, float], b'{"\\u001b": "Infinity", "b": 1e-3}')
    assert costs == {r"\x1b": math.inf, "b": 0.001}
    with pytest.raises(SpecError):
        decode_printable(EventView, b'{"text": "\\u001b')


@given(st.text(st.characters()))
def test_no_text_brings_a_control_character_through(text: str) -> None:
    event = EventView(1.0, None, "note", text.encode(errors="replace").decode())
    shown = decode_printable(EventView, encode(EventView, event)).text
    assert not has_controls(shown.replace("\t", ""))
