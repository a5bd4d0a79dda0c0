"""What a simulation is told, checked; and the commands that take it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Option

from autoscaler.domain.errors import SpecError
from autoscaler.spec.objective_text import parse_objective_text


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """A workload, what there is to train on, and how all of it is to go.

    Each field is an option of the commands that `takes_scenario` makes.
    """

    workload: Annotated[
        Path | None, Option(help="CSV, or .trace, of jobs and when they arrive.")
    ] = None
    study: Annotated[
        Path | None,
        Option(help="YAML of a study whose trials are the jobs, in place of a workload."),
    ] = None
    profiles: Annotated[
        list[Path],
        Option(help="Directory of measured applications; may be repeated.", metavar="<path>"),
    ] = field(default_factory=list)
    regimes: Annotated[
        Path | None, Option(help="Directory of the regimes of a .trace: rigid jobs on a pool.")
    ] = None
    offers: Annotated[
        Path | None, Option(help="YAML of what can be bought: an elastic cloud.")
    ] = None
    cluster: Annotated[
        str | None,
        Option(
            help="A pool paid for already: machines x devices, as 16x4, or YAML of several kinds."
        ),
    ] = None
    policy: Annotated[
        str,
        Option(help="Who plans, as marginal, pollux, sia; of a wrong name all are told."),
    ] = "marginal"
    objective: Annotated[
        str | None,
        Option(
            help="Of every job, or of the study: cheapest, fastest, balanced, value_of_time=40, "
            "deadline=2h, budget=5 or deadline=2h,budget=5.",
            show_default="balanced, or what the study's file says",
        ),
    ] = None
    interval_seconds: Annotated[
        float, Option("--interval", help="Seconds between plans, at most.")
    ] = 60.0
    restart_seconds: Annotated[
        float, Option(help="What every change of a job's instances holds it up.")
    ] = 1.0
    most_instances: Annotated[int, Option("--max-instances", help="Of each job.")] = 16
    step_error: Annotated[float, Option(help="Log standard deviation of measured step times.")] = (
        0.0
    )
    noise_error: Annotated[
        float, Option(help="Log standard deviation of measured noise scales.")
    ] = 0.0
    interference: Annotated[
        float,
        Option(help="Share of speed that a distributed job loses on a machine with another."),
    ] = 0.0
    fleet_usd_per_hour: Annotated[
        float | None, Option(help="What all instances together may cost an hour.")
    ] = None
    seed: Annotated[int, Option(help="The same seed gives the same run.")] = 0
    published: Annotated[
        bool, Option(help="With the quirks of the published simulator of Pollux.")
    ] = False
    remembers: Annotated[
        bool,
        Option("--remember", help="What a job teaches is known to the next of its application."),
    ] = False
    replans_on_news: Annotated[
        bool,
        Option("--on-news", help="Plan for a pool also when something happens, as in earnest."),
    ] = False
    device_batches: Annotated[
        list[str],
        Option(
            "--device-batch",
            help="The most examples on one device, as yolov3=8; repeatable.",
            metavar="<application=number>",
        ),
    ] = field(default_factory=list)

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
        most_usd = self.fleet_usd_per_hour
        if most_usd is not None and not 0 < most_usd < float("inf"):
            raise SpecError(f"{most_usd} must be above 0", "--fleet-usd-per-hour")
        deadlines = [
            parse_objective_text(self.objective or "balanced", now_seconds).deadline_seconds
            for now_seconds in (0.0, 1.0)
        ]
        if deadlines[0] is not None and deadlines[0] == deadlines[1]:
            message = "no simulation knows the date: write how long after submission, as 2h"
            raise SpecError(message, "--objective: deadline")
        if not 0 <= self.interference < 1:
            raise SpecError(f"{self.interference} must be from 0 to below 1", "--interference")

    @property
    def title(self) -> str:
        """What is simulated, in a word."""
        named = self.study or self.workload
        return "" if named is None else named.stem

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


def takes_scenario(
    but: Collection[str] = (), **defaults: object
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, whose first argument they become, the options of a scenario.

    Args:
        but: fields of `SimulateOptions` that are not asked for.
        defaults: of some fields, in place of their own.
    """
    hints = get_type_hints(SimulateOptions, include_extras=True)
    taken = [each for each in fields(SimulateOptions) if each.name not in but]
    asked = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(each.name, _default(each)),
            annotation=hints[each.name],
        )
        for each in taken
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        parameters = sorted((*asked, *own), key=lambda each: each.default is not each.empty)

        def run(**given: Any) -> None:
            scenario = SimulateOptions(**{each.name: given.pop(each.name) for each in taken})
            command(scenario, **given)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return inspect.Parameter.empty if each.default is MISSING else each.default
