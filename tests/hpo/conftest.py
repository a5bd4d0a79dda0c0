from __future__ import annotations

from tests.hpo.site import site_of
from tests.service.conftest import api

__all__ = ["api", "site_of"]
