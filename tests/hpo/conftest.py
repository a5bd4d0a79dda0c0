from __future__ import annotations

from tests.service.conftest import api

__all__ = ["api"]
