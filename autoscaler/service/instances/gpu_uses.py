"""Last use of the GPUs of each instance, in memory: a store need not keep it."""

from __future__ import annotations

from collections.abc import Collection

from autoscaler.domain.gpu_use import GpuUse


class GpuUses:
    """Uses by instance, as the agents reported them last. Threads may share them."""

    def __init__(self) -> None:
        self._uses: dict[str, GpuUse] = {}

    def note(self, instance: str, use: GpuUse | None) -> None:
        """Keep the use in an instance's report; None: the instance has none to report."""
        if use is not None:
            self._uses[instance] = use
        elif instance in self._uses:
            self._uses.pop(instance, None)

    def of(self, instance: str) -> GpuUse | None:
        """Return the use of an instance's GPUs; None if it has reported none."""
        return self._uses.get(instance)

    def keep(self, instances: Collection[str]) -> None:
        """Forget all instances but these."""
        for instance in self._uses.keys() - set(instances):
            self._uses.pop(instance, None)
