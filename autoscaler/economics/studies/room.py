"""What the limits leave to a study's trials."""

from __future__ import annotations

import numpy as np

from autoscaler.economics.studies.rung import StudySupply

_ROUNDING = 1e-9


class Room:
    """Instances that are taken count against every limit; offers are by their place."""

    def __init__(self, supply: StudySupply) -> None:
        self._supply = supply
        self._used = np.zeros(len(supply.limits))

    def bears(self, offer: int, instances: int) -> bool:
        """Whether the limits leave room for so many more."""
        if instances <= 0 or not len(self._used):
            return True
        uses = self._supply.uses[:, offer]
        touched, more = uses > 0, self._used + instances * uses
        return bool((more[touched] <= self._supply.maximum[touched] * (1.0 + _ROUNDING)).all())

    def take(self, offer: int, instances: int) -> None:
        """Let so many more be held; with less than 0 of them some are given back."""
        if instances and len(self._used):
            self._used = self._used + instances * self._supply.uses[:, offer]
