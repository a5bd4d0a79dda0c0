from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.time_use import CostCategory, LostWork, TimeCount, TimeUse
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.receipt import Receipt, TimeRecord, receipt, shared_count
from tests.ledger.test_ledger import DAY, TIMES, bills

USEFUL, BOOT, IDLE = CostCategory.USEFUL, CostCategory.BOOT, CostCategory.IDLE
PAUSE, LOST, UNKNOWN = CostCategory.PAUSE, CostCategory.LOST, CostCategory.UNKNOWN
SECONDS = st.floats(0.0, 2 * DAY)
COUNTS = st.builds(
    TimeCount,
    TIMES,
    st.builds(TimeUse, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS),
    st.sampled_from([USEFUL, BOOT, IDLE, PAUSE, LOST, UNKNOWN]),
)
RECORDS = st.builds(TimeRecord, st.none() | COUNTS, st.none() | TIMES, st.booleans())
LOST_WORK = st.lists(st.builds(LostWork, TIMES, SECONDS, st.integers(1, 100)), max_size=3)
PRICE = Decimal("3.6")  # $0.001 a second


@given(
    lines=bills(),
    records=st.dictionaries(
        st.builds("{}-{}-1".format, st.sampled_from("ab"), st.integers(0, 7)), RECORDS
    ),
    lost_work=LOST_WORK,
    now_seconds=TIMES,
)
def test_the_parts_add_up_to_the_ledger_whatever_is_known(
    lines: list[LedgerEntry],
    records: dict[str, TimeRecord],
    lost_work: list[LostWork],
    now_seconds: float,
) -> None:
    ledger = Ledger(lines)
    charges = ledger.charges(now_seconds)
    for job in "ab":
        made = receipt(job, ledger.bills, records, lost_work, now_seconds)
        assert made.whole.usd == ledger.spent(job, now_seconds)
        billed_seconds = sum(charge.seconds for charge in charges if charge.job == job)
        assert made.whole.billed_seconds == billed_seconds
        assert sum(split.usd for split in made.by_offer.values()) == made.whole.usd
        for split in (made.whole, *made.by_offer.values()):
            assert sum((part.usd for part in split.parts.values()), Decimal(0)) == split.usd
            seconds = math.fsum(part.seconds for part in split.parts.values())
            assert seconds == pytest.approx(split.billed_seconds, abs=1e-3)
            assert all(part.seconds >= -1e-6 for part in split.parts.values())
            assert all(part.usd >= 0 for part in split.parts.values())


def held(from_seconds: float, until_seconds: float, minimum: int = 0) -> Ledger:
    common = ("a-0-1", "a", "x", PRICE)
    return Ledger(
        [
            LedgerEntry(EntryKind.OPEN, *common, from_seconds, minimum),
            LedgerEntry(EntryKind.CLOSE, *common, until_seconds, minimum),
        ]
    )


def receipt_of(
    ledger: Ledger, record: TimeRecord | None, *lost_work: LostWork, now_seconds: float = 1e6
) -> Receipt:
    records = {} if record is None else {"a-0-1": record}
    return receipt("a", ledger.bills, records, lost_work, now_seconds)


def seconds_of(made: Receipt) -> dict[str, float]:
    parts = made.whole.parts.items()
    return {name.value: round(part.seconds, 6) for name, part in parts if part.seconds}


def test_a_counted_instance_is_divided_by_its_count() -> None:
    count = TimeCount(110.0, TimeUse(60.0, 10.0, 5.0, 4.0, 1.0), IDLE)
    made = receipt_of(held(100.0, 200.0), TimeRecord(count))
    # 10 s before the agent count as boot, 10 s after its last report as idle.
    assert seconds_of(made) == {
        **{"useful": 60.0, "boot": 20.0, "idle": 15.0},
        **{"pause": 4.0, "lost": 1.0},
    }
    assert float(made.whole.part(USEFUL).usd) == pytest.approx(0.06)
    assert made.whole.productive_share == pytest.approx(0.6)


def test_the_time_after_the_last_report_of_a_training_is_unknown() -> None:
    count = TimeCount(100.0, TimeUse(useful_seconds=80.0), USEFUL)
    assert seconds_of(receipt_of(held(100.0, 200.0), TimeRecord(count))) == {
        "useful": 80.0,
        "unknown": 20.0,
    }


def test_without_a_count_only_the_boot_is_known() -> None:
    ledger = held(100.0, 200.0)
    known = TimeRecord(None, trained_seconds=130.0)
    assert seconds_of(receipt_of(ledger, known)) == {"boot": 30.0, "unknown": 70.0}
    assert seconds_of(receipt_of(ledger, TimeRecord(None, None, True))) == {"boot": 100.0}
    assert seconds_of(receipt_of(ledger, None)) == {"unknown": 100.0}


def test_the_rest_of_a_minimum_is_idle() -> None:
    count = TimeCount(100.0, TimeUse(useful_seconds=20.0), USEFUL)
    made = receipt_of(held(100.0, 120.0, minimum=60), TimeRecord(count))
    assert seconds_of(made) == {"useful": 20.0, "idle": 40.0}


def test_a_faster_clock_of_the_instance_leaves_the_shares_as_they_are() -> None:
    count = TimeCount(100.0, TimeUse(150.0, 50.0), USEFUL)
    made = receipt_of(held(100.0, 200.0), TimeRecord(count))
    assert seconds_of(made) == {"useful": 75.0, "boot": 25.0}


def test_work_that_was_made_again_is_lost_where_it_was_done() -> None:
    count = TimeCount(100.0, TimeUse(80.0, 20.0), USEFUL)
    work = LostWork(until_seconds=150.0, seconds=40.0, steps=10)  # from 110 s, in the boot
    made = receipt_of(held(100.0, 200.0), TimeRecord(count), work)
    assert seconds_of(made) == {"useful": 50.0, "boot": 20.0, "lost": 30.0}
    beside = LostWork(until_seconds=90.0, seconds=40.0, steps=10)
    assert seconds_of(receipt_of(held(100.0, 200.0), TimeRecord(count), beside)) == {
        "useful": 80.0,
        "boot": 20.0,
    }


def test_a_follower_of_a_gang_has_its_own_boot_and_its_leaders_shares() -> None:
    leader = TimeCount(100.0, TimeUse(60.0, 30.0, 0.0, 20.0, 0.0), USEFUL)
    count = shared_count(leader, 100.0, 140.0, 180.0)
    assert count.use == TimeUse(30.0, 40.0, 0.0, 10.0, 0.0)
    assert shared_count(TimeCount(0.0, TimeUse()), 0.0, 5.0, 9.0).use == TimeUse(boot_seconds=5.0)
