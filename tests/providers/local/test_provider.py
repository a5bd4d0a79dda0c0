from __future__ import annotations

from tests.conformance.provider import ProviderConformance


class TestLocalConformance(ProviderConformance):
    """The fixture `cloud` is that of this folder."""
