"""Formatting of figures for people: short, never NaN."""

from __future__ import annotations

import math
from functools import lru_cache

from autoscaler.economics.supply.supply import SECONDS_PER_HOUR

_SMALLEST_SHOWN = 1e-9


def number(value: float, at_least_decimals: int = 0) -> str:
    """Return three significant digits without an exponent: ``412``, ``0.00123``, ``12300``."""
    if 1e-4 <= abs(value) < 999:
        text = f"{value:.3g}"
        return text if at_least_decimals == 0 else _padded(text, at_least_decimals)
    if math.isnan(value):
        return "unknown"
    rounded = float(f"{value:.2e}")
    if math.isinf(rounded):
        return "endless" if value > 0 else "-endless"
    if abs(rounded) < _SMALLEST_SHOWN:
        return f"{0:.{at_least_decimals}f}"
    decimals = max(2 - math.floor(math.log10(abs(rounded))), 0)
    text = f"{rounded:.{decimals}f}"
    return _padded(text.rstrip("0").rstrip(".") if "." in text else text, at_least_decimals)


def _padded(text: str, least_decimals: int) -> str:
    """Return the text with at least so many decimals."""
    whole, _, fraction = text.partition(".")
    fraction = fraction.ljust(least_decimals, "0")
    return f"{whole}.{fraction}" if fraction else whole


def signed(value: float) -> str:
    """Return the number with its sign: ``+412``, ``-3.5``."""
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"


@lru_cache(maxsize=4096)
def money(usd: float) -> str:
    """Return US dollars to the cent, or three digits below $1: ``$2.61``, ``$0.00123``."""
    sign, size = "-" if usd < 0 else "", abs(usd)
    if 1 <= size < 100:
        return f"{sign}${size:.2f}".removesuffix(".00")
    return f"{sign}${number(size, 2 if 0 < size < 1 else 0)}"


def per_hour(usd_per_second: float) -> str:
    """Return $ per second as $ per hour: ``$2.61/h``."""
    return f"{money(usd_per_second * SECONDS_PER_HOUR)}/h"


def signed_per_hour(usd_per_second: float) -> str:
    """Return $ per second as signed $ per hour: ``+$2.61/h``."""
    return f"{'-' if usd_per_second < 0 else '+'}{per_hour(abs(usd_per_second))}"


def duration(seconds: float) -> str:
    """Return seconds in a readable unit: ``190 s``, ``11 min``, ``3.2 h``, ``4.5 d``."""
    if not math.isfinite(seconds):
        return number(seconds)
    for limit, unit, name in ((300, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{_short(seconds / unit)} {name}"
    return f"{_short(seconds / 86400)} d"


def percent(share: float) -> str:
    """Return a share as a percentage: ``94 %``."""
    return f"{100 * share:.0f} %"


def _short(value: float) -> str:
    return number(round(value, 1)) if value < 10 else number(round(value))
