"""Last known prices of offers, kept on disk for instances whose pool is no longer sold."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

from autoscaler.domain.text import parse_json

_log = logging.getLogger(__name__)


class KnownPrices:
    """Maximum hourly price of each offer when last sold. Thread-safe.

    Without a `path` the prices are lost when the process ends. `trouble` is the reason why the
    file lacks current prices, or None.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._usd_per_hour = {} if path is None else _read_prices(path)
        self._saved = self._usd_per_hour
        self.trouble: str | None = None

    def learn(self, usd_per_hour: Mapping[str, Decimal]) -> None:
        """Record prices in $/h by offer. Prices of other offers stay.

        If the file can't be written, the next call tries again.
        """
        with self._lock:
            self._usd_per_hour = {**self._usd_per_hour, **usd_per_hour}
            if self._path is not None and self._usd_per_hour != self._saved:
                self._save(self._path)

    def of(self, offer: str) -> Decimal | None:
        """Return the last known price of an offer in $/h; None if no price was recorded."""
        with self._lock:
            return self._usd_per_hour.get(offer)

    def _save(self, path: Path) -> None:
        try:
            _write_prices(path, self._usd_per_hour)
        except OSError as error:
            if self.trouble is None:
                _log.warning("%s: the last known prices can't be saved: %s", path, error)
            self.trouble = (
                f"{path}: the last known prices can't be saved: {error.strerror or error}: "
                "after a restart, instances of removed pools may exhaust the caps: make room on "
                "the disk or fix the folder's permissions"
            )
        else:
            self._saved, self.trouble = self._usd_per_hour, None


def _read_prices(path: Path) -> dict[str, Decimal]:
    """Return the prices in a file; empty if unreadable, which only makes caps stricter."""
    try:
        known = parse_json(path.read_text())
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
