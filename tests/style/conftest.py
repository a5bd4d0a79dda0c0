from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """Collect no garbage while files are parsed.

    Hypothesis calls Python code at each collection. Within `ast.parse` of Python 3.11 that ends in
    a SystemError (python/cpython#106905).
    """
    gc.disable()
    yield
    gc.enable()
