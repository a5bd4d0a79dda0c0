"""Limits on examples per device, halved when a device runs out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.domain.errors import DeviceMemoryError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.training.members.rounds import Agreement, ReplicaRow


class DeviceLimits:
    """Bounds of the job's batch on this instance's kind of device.

    `own` holds the present bounds on this kind. No rank takes fewer than `least_share` examples at
    once.
    """

    def __init__(self, bounds: BatchBounds, device_kind: str, least_share: int) -> None:
        self._job_bounds = bounds
        self._kind = device_kind
        self._least_share = least_share
        self.own = bounds.on(device_kind)

    @property
    def reported(self) -> BatchBounds:
        """Bounds of the job's batch on all kinds of device, as far as known here."""
        return self._job_bounds.limited(self._kind, self.own.device_maximum)

    def agreed(self, agreement: Agreement) -> BatchBounds:
        """Return the bounds on the devices of all members of a round."""
        return replace(self.own, device_maximum=int(agreement.device_maximum))

    def learn(self, examples: int) -> int:
        """Halve the limit for this kind of device, as memory ran out with `examples` at once.

        Returns:
            The new limit in examples per device.

        Raises:
            DeviceMemoryError: the examples are too few to be halved.
        """
        half = examples // 2
        if half < self._least_share:
            counted = "1 example" if examples == 1 else f"{examples} examples"
            raise DeviceMemoryError(
                f"a device of kind {self._kind} ran out of memory with {counted} at once, which "
                "can't be split: take a smaller model or shorter examples, or allow only offers "
                "whose devices have more memory"
            )
        self._lower(half)
        return half

    def hear(self, rows: Sequence[ReplicaRow], kind_number: float) -> None:
        """Adopt lower limits that other instances of this kind have found."""
        for row in rows:
            if row.kind == kind_number:
                self._lower(row.device_maximum)

    def _lower(self, limit: float) -> None:
        if limit < self.own.device_maximum:
            self.own = replace(self.own, device_maximum=int(limit))
