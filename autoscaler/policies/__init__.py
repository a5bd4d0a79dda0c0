"""Scheduling policies: a snapshot of the deployment in, a plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoscaler.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from autoscaler.policies.base import Policy as Policy
    from autoscaler.policies.registry import create_policy as create_policy
    from autoscaler.policies.registry import policies as policies

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "base": ("Policy",),
        "registry": (
            "create_policy",
            "policies",
        ),
    },
)
