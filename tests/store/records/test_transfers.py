"""No byte is paid twice, and none is lost that was told in time."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.spending import LedgerEntry
from autoscaler.domain.transfer import Transfer, TransferAccount, TransferCount
from autoscaler.store.records.transfers import BOOKED_FROM_USD, settled, transferred

PRICES = st.decimals("0", "0.2", places=2)
PARTS = st.lists(
    st.tuples(st.integers(0, 20_000_000), st.integers(0, 20_000_000)), min_size=1, max_size=6
)


@st.composite
def heartbeats(draw: st.DrawFn) -> tuple[Transfer, list[TransferCount]]:
    """All that was sent, and what was heard of it: lost, repeated, late, over lives of an agent.

    Each life counts from nothing.
    """
    whole, told = Transfer(), []
    for life in range(draw(st.integers(1, 3))):
        total = Transfer()
        for part in draw(PARTS):
            total += Transfer(*part)
            told.append(TransferCount(float(life), total))
        whole += total
    numbers = draw(st.lists(st.integers(0, len(told) - 1), max_size=20))
    shuffled = numbers if draw(st.booleans()) else sorted(numbers)
    return whole, [told[number] for number in shuffled]


def owing(upload: Decimal, download: Decimal) -> HeldInstance:
    return HeldInstance(
        id="digits-0-1",
        job="digits",
        slot=0,
        generation=1,
        offer="far",
        devices_used=1,
        usd_per_hour=Decimal(1),
        desired=Desired.PRESENT,
        phase=InstancePhase.TRAINING,
        requested_seconds=0.0,
        transfer=TransferAccount(upload, download),
    )


def heard_in_time(told: Sequence[TransferCount]) -> Transfer:
    """Return the largest count of each life that came before one of a later life."""
    most: dict[float, Transfer] = {}
    for count in told:
        if count.begun_seconds >= max(most, default=0.0):
            known = most.get(count.begun_seconds, Transfer())
            most[count.begun_seconds] = known.most(count.transfer)
    return sum(most.values(), Transfer())


@given(sent=heartbeats(), upload=PRICES, download=PRICES)
def test_what_is_heard_is_booked_once_whatever_comes_in_which_order(
    sent: tuple[Transfer, list[TransferCount]], upload: Decimal, download: Decimal
) -> None:
    whole, told = sent
    held, lines = owing(upload, download), list[LedgerEntry]()
    for second, count in enumerate(told):
        lined = transferred(held, count, "digits", float(second // 3))
        held = lined.held
        lines += lined.new_lines
        assert held.transfer.usd(held.transfer.owed) < BOOKED_FROM_USD
        assert all(line.usd >= BOOKED_FROM_USD for line in lined.new_lines)
    lined = settled(held, 100.0)
    assert settled(lined.held, 101.0).new_lines == ()
    lines += lined.new_lines
    account = lined.held.transfer
    usd = sum((line.usd for line in lines), Decimal(0))
    assert usd == account.usd(heard_in_time(told)) <= account.usd(whole)
    assert usd == sum(account.usd(Transfer(each.sent_bytes, each.fetched_bytes)) for each in lines)
    times = [line.at_seconds for line in lines]
    assert times == sorted(set(times))


@given(lives=st.lists(PARTS, min_size=1, max_size=3), repeats=st.integers(1, 3))
def test_nothing_is_lost_of_lives_that_are_heard_to_their_ends(
    lives: list[list[tuple[int, int]]], repeats: int
) -> None:
    held, whole, paid_usd = owing(Decimal("0.12"), Decimal("0.09")), Transfer(), Decimal(0)
    for life, parts in enumerate(lives):
        total = Transfer()
        for part in parts:
            total += Transfer(*part)
            for _ in range(repeats):
                lined = transferred(held, TransferCount(float(life), total), None, 0.0)
                held = lined.held
                paid_usd += sum((line.usd for line in lined.new_lines), Decimal(0))
        whole += total
    paid_usd += sum((line.usd for line in settled(held, 1.0).new_lines), Decimal(0))
    assert paid_usd == held.transfer.usd(whole)
