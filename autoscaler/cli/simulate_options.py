"""What `castor simulate` was told, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.errors import SpecError


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """A workload, what there is to train on, and how all of it is to go."""

    workload: Path
    profiles: Sequence[Path] = ()
    regimes: Path | None = None
    offers: Path | None = None
    cluster: str | None = None
    policy: str = "marginal"
    objective: str = "balanced"
    interval_seconds: float = 60.0
    restart_seconds: float = 1.0
    most_instances: int = 16
    step_error: float = 0.0
    noise_error: float = 0.0
    interference: float = 0.0
    fleet_usd_per_hour: float | None = None
    seed: int = 0
    published: bool = False
    remembers: bool = False
    replans_on_news: bool = False
    device_batches: Sequence[str] = ()

    def check(self) -> None:
        """Make sure that every number can be used.

        Raises:
            SpecError: one can't; it names the option.
        """
        least: Mapping[str, tuple[float, float]] = {
            "--interval": (self.interval_seconds, 1.0),
            "--restart-seconds": (self.restart_seconds, 0.0),
            "--max-instances": (self.most_instances, 1),
            "--step-error": (self.step_error, 0.0),
            "--noise-error": (self.noise_error, 0.0),
            "--seed": (self.seed, 0),
        }
        for option, (value, minimum) in least.items():
            if not minimum <= value < float("inf"):
                raise SpecError(f"{value} must be at least {minimum:g}", option)
        if not 0 <= self.interference < 1:
            raise SpecError(f"{self.interference} must be from 0 to below 1", "--interference")

    @property
    def most_device_batches(self) -> dict[str, int]:
        """The most examples on one device, by application, of `yolov3=8` and the like.

        Raises:
            SpecError: a word is none of these.
        """
        found = {}
        for word in self.device_batches:
            application, _, number_of = word.partition("=")
            if not application or not number_of.isdigit() or int(number_of) < 1:
                raise SpecError(f'"{word}" is not like yolov3=8', "--device-batch")
            found[application] = int(number_of)
        return found
