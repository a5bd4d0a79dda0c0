"""Synchronous successive halving, for studies that Castor runs."""

from __future__ import annotations

from hpo import SynchronousHalvingPruner

__all__ = ["SynchronousHalvingPruner"]
