"""Facts of an instance are read in one place; a malformed one keeps no instance."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.activity import Activity
from autoscaler.domain.facts import Fact
from autoscaler.domain.gang import GangSeat, GangStart
from autoscaler.domain.instance import AskedOffer, Desired, HeldInstance, InstancePhase
from autoscaler.domain.job_world import (
    GenerationTime,
    JobWorld,
    MemberReport,
    WorldOpening,
    WorldSave,
)
from autoscaler.domain.report import Ending
from autoscaler.domain.trial import TrialEnding

HELD = HeldInstance(
    id="job-0-1",
    job="job",
    slot=0,
    generation=1,
    offer="small",
    devices_used=1,
    usd_per_hour=Decimal(1),
    desired=Desired.PRESENT,
    phase=InstancePhase.TRAINING,
    requested_seconds=100.0,
)
TIMES = {
    Fact.PREPARED: "prepared_seconds",
    Fact.ADMITTED: "admitted_seconds",
    Fact.HANDED_OVER: "handed_over_seconds",
    Fact.START: "measured_start_seconds",
    Fact.STANDBY: "standby_ends_seconds",
    Fact.RECALLED: "recalled_seconds",
    Fact.SESSION: "session_seconds",
    Fact.UNOPENED: "unopened_seconds",
    Fact.WITHOUT_SESSION: "without_session_seconds",
    Fact.COMPLETE: "completed_seconds",
    Fact.ENDING: "ending_seconds",
    Fact.JOIN: "join_seconds",
    Fact.WORLD_READY: "world_ready_seconds",
    Fact.LEAVES_WORLD: "leaves_world_seconds",
}
OTHERS: dict[Fact, tuple[str, str, object]] = {
    Fact.NETWORK: ("network", "aws/us-east-1", "aws/us-east-1"),
    Fact.ASKED: (
        "asked",
        "a 0.10 0\nb 0.11 0.01",
        (
            AskedOffer("a", Decimal("0.10"), Decimal(0)),
            AskedOffer("b", Decimal("0.11"), Decimal("0.01")),
        ),
    ),
    Fact.UNDECIDED: ("is_undecided", "yes", True),
    Fact.FIRST_START: ("starts_first", "1", True),
    Fact.GIVEN_UP: ("given_up_cause", "its agent never joined", "its agent never joined"),
    Fact.DONE: ("done_attempt", "3", 3),
    Fact.SCRIPT_END: ("script_ending", "early", Ending.EARLY),
    Fact.STOP_REASON: ("stop_reason", "no gain", "no gain"),
    Fact.TRIAL_END: ("trial_ending", "pruned", TrialEnding.PRUNED),
    Fact.TRIAL_CAUSE: ("trial_cause", "ValueError", "ValueError"),
    Fact.GANG: ("seat", "2 0 4", GangSeat(2, 0, 4)),
    Fact.GANG_START: ("gang_start", "3 over", GangStart(3, is_over=True)),
    Fact.RENDEZVOUS: ("rendezvous", "10.0.0.1:4000", "10.0.0.1:4000"),
    Fact.WORLD: ("world", "3 1 12.5 a,b", JobWorld(3, 1, 12.5, ("a", "b"))),
    Fact.WORLD_OPENING: ("world_opening", "3 host:80", WorldOpening(3, "host:80")),
    Fact.WORLD_REPORT: ("world_report", "3 1 - 13.0", MemberReport(3, True, None, 13.0)),
    Fact.WORLD_BEGUN: ("world_begun", "3 14.0", GenerationTime(3, 14.0)),
    Fact.WORLD_SAVE: ("world_save", "3 15.0 a/step 1@2", WorldSave(3, 15.0, "a/step 1@2")),
    Fact.ACTIVITY: (
        "activity",
        '{"quiet_seconds": 90.0, "steps": 5}',
        Activity(90.0, steps=5),
    ),
}
# What an instance with a malformed fact counts as: it ended long ago, or the fact is unknown.
LONG_AGO = {Fact.STANDBY: 0.0, Fact.COMPLETE: 0.0}


def held_with(key: Fact, text: str) -> HeldInstance:
    return replace(HELD, facts={key: text})


def test_every_fact_has_an_attribute_and_a_key_that_old_stores_hold() -> None:
    assert {*TIMES, *OTHERS} == set(Fact)
    assert sorted(fact.value for fact in Fact) == [
        "activity",
        "called back",
        "complete",
        "done",
        "ending",
        "first start",
        "gang",
        "gang start",
        "given up",
        "handed over",
        "join seconds",
        "known without session",
        "leaves its world",
        "let in",
        "network",
        "offers asked",
        "ready",
        "ready for a world",
        "rendezvous",
        "script end",
        "session",
        "stands by until",
        "start seconds",
        "stop reason",
        "trial cause",
        "trial end",
        "undecided",
        "without session since",
        "world",
        "world begun",
        "world opening",
        "world report",
        "world save",
    ]


@pytest.mark.parametrize(("key", "name"), TIMES.items())
@given(seconds=st.floats(allow_nan=False, allow_infinity=False))
def test_a_time_is_read_as_it_was_written(key: Fact, name: str, seconds: float) -> None:
    assert getattr(held_with(key, str(seconds)), name) == seconds
    assert getattr(HELD, name) is None
    assert getattr(held_with(key, ""), name) is None


@pytest.mark.parametrize(("key", "expected"), OTHERS.items())
def test_other_facts_have_their_types(key: Fact, expected: tuple[str, str, object]) -> None:
    name, text, value = expected
    assert getattr(held_with(key, text), name) == value
    assert getattr(HELD, name) == ("" if key is Fact.NETWORK else None)


@pytest.mark.parametrize(("key", "name"), TIMES.items())
@given(text=st.one_of(st.text(min_size=1), st.sampled_from(["nan", "inf", "-inf", "1e999"])))
def test_no_text_of_a_time_raises_or_is_endless(key: Fact, name: str, text: str) -> None:
    seconds = getattr(held_with(key, text), name)
    assert seconds is None or math.isfinite(seconds)


def test_a_malformed_fact_keeps_no_instance() -> None:
    for key, name in TIMES.items():
        held = held_with(key, "a week ago")
        assert getattr(held, name) == LONG_AGO.get(key)
        assert held.ordered_seconds == HELD.requested_seconds
    assert held_with(Fact.SCRIPT_END, "new").script_ending is Ending.WITHOUT_SESSION
    assert held_with(Fact.TRIAL_END, "new").trial_ending is None
    assert held_with(Fact.DONE, "x").done_attempt is None
    assert held_with(Fact.ACTIVITY, '{"quiet_seconds": -1}').activity is None
    assert held_with(Fact.ACTIVITY, "[90]").activity is None
    assert held_with(Fact.ASKED, "a b c").asked is None
    assert held_with(Fact.ASKED, "a").alternatives == ()
