"""Last known prices of offers, kept on disk for instances whose pool is no longer sold."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

_log = logging.getLogger(__name__)


class KnownPrices:
    """Maximum hourly price of each offer when last sold. Thread-safe.

    Without a `path` the prices are lost when the process ends.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._usd_per_hour = {} if path is None else _read_prices(path)

    def learn(self, usd_per_hour: Mapping[str, Decimal]) -> None:
        """Record prices in $/h by offer. Prices of other offers stay.

        Raises:
            OSError: the file can't be written.
        """
        with self._lock:
            known = {**self._usd_per_hour, **usd_per_hour}
            if known != self._usd_per_hour and self._path is not None:
                _write_prices(self._path, known)
            self._usd_per_hour = known

    def of(self, offer: str) -> Decimal | None:
        """Return the last known price of an offer in $/h; None if no price was recorded."""
        with self._lock:
            return self._usd_per_hour.get(offer)


def _read_prices(path: Path) -> dict[str, Decimal]:
    """Return the prices in a file; empty if unreadable, which only makes caps stricter."""
    try:
        known = json.loads(path.read_text())
        prices = {str(offer): Decimal(price) for offer, price in known.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, InvalidOperation) as error:
        _log.warning("%s: the last known prices can't be read: %s", path, error)
        return {}
    return {offer: price for offer, price in prices.items() if price.is_finite() and price >= 0}


def _write_prices(path: Path, prices: Mapping[str, Decimal]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        json.dump({offer: str(price) for offer, price in prices.items()}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
