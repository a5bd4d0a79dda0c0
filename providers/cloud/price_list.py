"""Owner's own price list, if the settings of a cloud name one."""

from __future__ import annotations

from pathlib import Path

from autoscaler.market.price_table import PriceTable, parse_price_table
from autoscaler.spec.form_file import read_text


def read_price_table(prices_from: str | None) -> PriceTable | None:
    """Return the price list in a file; None if no file is named.

    Raises:
        SpecError: the file can't be read or is invalid.
    """
    if prices_from is None:
        return None
    path = Path(prices_from)
    return parse_price_table(read_text(path, "a price list"), prices_from, path.stat().st_mtime)
