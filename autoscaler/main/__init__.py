"""Composition root of the controller, which chooses its providers, stores and clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoscaler.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from autoscaler.main.deployment import Deployment as Deployment
    from autoscaler.main.serving import serve as serve
    from autoscaler.main.settings import ServeSettings as ServeSettings

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {"deployment": ("Deployment",), "serving": ("serve",), "settings": ("ServeSettings",)},
)
