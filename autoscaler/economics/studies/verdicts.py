"""What is decided for the trials of a study, whatever way it was planned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Allocation


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """What a trial is to hold, and why: `reason` begins as the reasons of decisions do."""

    trial: str
    target: Allocation | None
    reason: str


@dataclass(frozen=True, slots=True)
class StudyVerdict:
    """What is decided for a study.

    Attributes:
        trials: one for each, in the order of the moment's.
        usd_per_second: what a second of the study is worth to it, at the margin.
        bid: what an instance more is worth to it, $ a second beyond its price.
        seconds: until it is likely to be done; None: not known.
        barrier_seconds: until its trials wait for each other no more; None: they don't.
        chance: that deadline and budget are kept; None: not known.
        note: what its owner should know; None: nothing.
        again_seconds: when it is to be planned again at the latest; None: whenever others are.
    """

    trials: tuple[TrialVerdict, ...]
    usd_per_second: float = 0.0
    bid: float = 0.0
    seconds: float | None = None
    barrier_seconds: float | None = None
    chance: float | None = None
    note: str | None = None
    again_seconds: float | None = None

    def noted(self, note: str | None) -> StudyVerdict:
        """The same with a note more."""
        notes = [each for each in (self.note, note) if each]
        return replace(self, note="; ".join(notes) or None)
