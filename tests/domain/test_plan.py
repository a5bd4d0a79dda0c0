"""Codes of reasons, as journals hold them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from autoscaler.domain.plan import Action, Decision, ReasonCode

DOCUMENT = TypeAdapter(Decision)
STORED = {"job": "a", "action": "hold", "current": None, "target": None, "reason": "hold a"}
# Values in journals of the first version.
FIRST_CODES = {
    "",
    "a boot is under way",
    "at a barrier",
    "beyond the budget of its study",
    "beyond the deadline of its study",
    "can't be planned",
    "first start",
    "holds unknown",
    "slowed by a shared budget",
    "a shared budget is used up",
    "least cost",
    "nothing allowed",
    "outbid",
    "stages",
    "stops",
    "study",
    "under way",
    "unmeasured",
}


def test_codes_are_stored_as_ever() -> None:
    assert {code.value for code in ReasonCode} - {ReasonCode.OTHER} == FIRST_CODES


@pytest.mark.parametrize("code", ReasonCode)
def test_a_code_is_stored_as_its_value(code: ReasonCode) -> None:
    decision = Decision("a", Action.HOLD, None, None, "hold a", ground=code)
    written = DOCUMENT.dump_json(decision)
    assert json.loads(written)["ground"] == code.value
    assert DOCUMENT.validate_json(written) == decision


@given(code=st.text())
def test_a_journal_of_any_version_opens(code: str) -> None:
    decision = DOCUMENT.validate_python(STORED | {"ground": code})
    assert decision.ground is (ReasonCode(code) if code in FIRST_CODES else ReasonCode.OTHER)
    assert DOCUMENT.validate_python(STORED).ground is ReasonCode.NONE
