from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.spec.quantities import (
    format_duration,
    format_money,
    parse_duration,
    parse_moment,
    parse_money,
)

NOW_SECONDS = 1_796_083_200.0  # 2026-12-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("4h", 14_400),
        ("2d", 172_800),
        ("1h30m", 5_400),
        (" 1d 2h 3m 4s ", 93_784),
        ("0.5h", 1_800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "-4h", "30m1h", "4 hours", "nan", "1e3s", "4h!"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number and a unit"):
        parse_duration(text)


def test_no_time_at_all() -> None:
    with pytest.raises(ValueError, match="above 0"):
        parse_duration("0s")


@pytest.mark.parametrize(
    ("text", "usd"), [("500", "500"), ("$500", "500"), ("0.35", "0.35"), ("$ 1.5", "1.5")]
)
def test_money(text: str, usd: str) -> None:
    assert parse_money(text) == Decimal(usd)


@pytest.mark.parametrize("text", ["", "-5", "0", "0.00", "nan", "inf", "1e3", "five", "5 EUR"])
def test_what_is_no_money(text: str) -> None:
    with pytest.raises(ValueError, match=r"write it like 40 or \$0.50"):
        parse_money(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", NOW_SECONDS + 14_400),
        ("2026-12-01T08:00Z", NOW_SECONDS + 28_800),
        ("2026-12-01T08:00+01:00", NOW_SECONDS + 25_200),
        ("2026-12-01 00:00:01Z", NOW_SECONDS + 1),
    ],
)
def test_moments(text: str, seconds: float) -> None:
    assert parse_moment(text, NOW_SECONDS) == seconds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2026-12-01T00:00Z", "was 0s ago: write a future time"),
        ("2026-11-30T20:48Z", "was 3h12m ago: write a future time"),
        ("2026-12-01T08:00", "has no time zone"),
        ("2026-12-02", "has no time zone"),
        ("soon", "neither a duration like 4h nor a time"),
        ("-4h", "neither a duration like 4h nor a time"),
    ],
)
def test_what_is_no_moment_to_come(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_moment(text, NOW_SECONDS)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45, "45s"),
        (59.6, "1m"),
        (11_520, "3h12m"),
        (3_600, "1h"),
        (3_605, "1h"),
        (187_200, "2d4h"),
    ],
)
def test_durations_as_tables_show_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(1, 10**8))
def test_a_shown_duration_is_read_back_to_less_than_its_second_unit(seconds: int) -> None:
    unit = next(unit for least, unit in ((86_400, 3_600), (3_600, 60), (0, 1)) if seconds >= least)
    assert 0 <= seconds - parse_duration(format_duration(seconds)) < unit


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (Decimal("40"), "$40"),
        (0.35, "$0.35"),
        (Decimal("1250.5"), "$1,250.50"),
        (0.004, "$0.004"),
        (Decimal("0"), "$0"),
    ],
)
def test_money_as_tables_show_it(usd: Decimal | float, text: str) -> None:
    assert format_money(usd) == text


@pytest.mark.parametrize("text", ["1" * 4_000, "$ 9999999999.5", "10000000000"])
def test_an_amount_that_is_too_large_is_called_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"is too large: write at most \$1,000,000,000"):
        parse_money(text)
