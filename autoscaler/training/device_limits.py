"""How many examples the devices of this instance take at once, as the job finds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.domain.errors import DeviceMemoryError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.training.members.rounds import Agreement, Row


class DeviceLimits:
    """The bounds of the job's batch on this instance's kind of device.

    No rank takes fewer than `least_share` examples at once.
    """

    def __init__(self, bounds: BatchBounds, device_kind: str, least_share: int) -> None:
        self._of_job = bounds
        self._kind = device_kind
        self._least_share = least_share
        self.own = bounds.on(device_kind)

    @property
    def reported(self) -> BatchBounds:
        """The bounds of the job's batch on all kinds of device, as far as they are known here."""
        return self._of_job.limited(self._kind, self.own.device_maximum)

    def agreed(self, agreement: Agreement) -> BatchBounds:
        """Return the bounds on the devices of all members of a round."""
        return replace(self.own, device_maximum=int(agreement.device_maximum))

    def learn(self, examples: int) -> int:
        """Let no device of this kind take so many examples at once again: memory ran out.

        Returns:
            How many it takes from now on, at most.

        Raises:
            DeviceMemoryError: they are too few to be halved.
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

    def hear(self, rows: Sequence[Row], kind_number: float) -> None:
        """Take over what other instances of this kind have learnt."""
        for row in rows:
            if row.kind == kind_number:
                self._lower(row.device_maximum)

    def _lower(self, most: float) -> None:
        if most < self.own.device_maximum:
            self.own = replace(self.own, device_maximum=int(most))
