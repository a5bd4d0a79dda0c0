"""Sentences on what forbids an allocation: the limit, its value and where it is set. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.domain.offer import LimitUnit
from autoscaler.domain.size_bars import BarKind, SizeBar
from autoscaler.service.pages.formats import billed, counted


def forbidden_text(bars: Iterable[SizeBar]) -> str:
    """Return what forbids an allocation, as clauses; empty without a bar."""
    return "; ".join(bar_text(bar) for bar in bars)


def forbidden_names(bars: Iterable[SizeBar]) -> str:
    """Return the short names of what forbids an allocation."""
    return ", ".join(dict.fromkeys(bar.title for bar in bars))


def bar_text(bar: SizeBar) -> str:
    """Return what forbids an allocation, as a clause with its value and its place."""
    maximum = _amount(bar.maximum, bar.unit)
    match bar.kind:
        case BarKind.LIMIT:
            return f"the limit {bar.name} is {maximum}{_held_by_others(bar)}{_set_at(bar.place)}"
        case BarKind.REFUSED:
            return f"the cloud refuses {bar.name} now"
        case BarKind.MAXIMUM:
            return f"the job may hold {maximum} at most{_set_at(_in_file(bar.kind))}"
        case BarKind.MAXIMUM_OF_OFFER:
            return f"the job may hold {maximum} of {bar.name} at most{_set_at(_in_file(bar.kind))}"
        case BarKind.MAXIMUM_PRICE:
            return f"its instances may cost {maximum} at most{_set_at(_in_file(bar.kind))}"
        case BarKind.BUDGET:
            left = f"the rest of its budget of {billed(bar.maximum)}"
            return f"{left} does not pay its start{_set_at(_in_file(bar.kind))}"
        case BarKind.FIXED:
            return bar.place or "its size is fixed now"


def _amount(value: float | None, unit: LimitUnit | None) -> str:
    amount = value or 0.0
    if unit is LimitUnit.USD_PER_HOUR:
        return f"{billed(amount)}/h"
    noun = "device" if unit is LimitUnit.DEVICES else "instance"
    return counted(int(amount), noun) if amount == int(amount) else f"{amount:,.12g} {noun}s"


def _held_by_others(bar: SizeBar) -> str:
    if bar.maximum is None or bar.room is None or bar.maximum <= bar.room:
        return ""
    held = _amount(round(bar.maximum - bar.room, 6), bar.unit)
    return f", of which other jobs hold {held}"


def _in_file(kind: BarKind) -> str:
    return f"{kind} of its job file"


def _set_at(place: str) -> str:
    return f" ({place})" if place else ""
