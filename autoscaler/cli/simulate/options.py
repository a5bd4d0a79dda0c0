"""Options of simulations, their checks, and a decorator for commands that accept them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Option

from autoscaler.domain.errors import SpecError

LEAST_PACE, MOST_PACE = 1.0, 10_000.0
"""Simulated seconds in each second of `--serve`."""


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Workload, market, policy and settings of a simulation.

    Each field is an option of the commands that `takes_scenario` decorates.
    """

    workload: Annotated[
        Path | None, Option(help="Jobs with their arrival times: a CSV file, or a .trace.")
    ] = None
    study: Annotated[
        Path | None,
        Option(
            help="Study file for simulations (YAML), instead of a workload; its trials are jobs."
        ),
    ] = None
    profiles: Annotated[
        list[Path],
        Option(help="Directory of application profiles; may be repeated.", metavar="<path>"),
    ] = field(default_factory=list)
    regimes: Annotated[
        Path | None,
        Option(help="Directory of the regimes of a .trace, for rigid jobs on a fixed pool."),
    ] = None
    offers: Annotated[Path | None, Option(help="Offers file (YAML) of an elastic cloud.")] = None
    cluster: Annotated[
        str | None,
        Option(
            help="Fixed pool, already paid for: machines x devices of each, as 16x4, or a YAML "
            "file of several kinds."
        ),
    ] = None
    policy: Annotated[
        str,
        Option(help="Policy, as marginal, pollux or sia; an unknown name lists all policies."),
    ] = "marginal"
    objective: Annotated[
        str | None,
        Option(
            help="Objective of every job, or of the study: cheapest, fastest, balanced, "
            "value_of_time=40, deadline=2h, budget=5 or deadline=2h,budget=5.",
            show_default="balanced, or the objective in the study's file",
        ),
    ] = None
    interval_seconds: Annotated[
        float, Option("--interval", help="Longest time between two plans, in seconds.")
    ] = 60.0
    restart_seconds: Annotated[
        float, Option(help="Seconds without training after each change of a job's instances.")
    ] = 1.0
    save_seconds: Annotated[
        float | None,
        Option(
            "--restartable",
            help="Make jobs restartable, with a checkpoint every so many seconds of training.",
        ),
    ] = None
    most_instances: Annotated[
        int, Option("--max-instances", help="Maximum number of instances of a job.")
    ] = 16
    step_error: Annotated[
        float, Option(help="Error of measured step times: standard deviation of their logarithm.")
    ] = 0.0
    noise_error: Annotated[
        float,
        Option(help="Error of measured noise scales: standard deviation of their logarithm."),
    ] = 0.0
    interference: Annotated[
        float,
        Option(
            help="Fraction of speed, from 0 to below 1, that a distributed job loses on a machine "
            "shared with another."
        ),
    ] = 0.0
    fleet_usd_per_hour: Annotated[
        float | None,
        Option(help="Limit on the price of all instances together, US dollars an hour."),
    ] = None
    seed: Annotated[int, Option(help="Random seed; equal seeds give equal runs.")] = 0
    published: Annotated[
        bool, Option(help="Reproduce the quirks of the published Pollux simulator.")
    ] = False
    remembers: Annotated[
        bool,
        Option(
            "--remember",
            help="Start each job with the measurements of earlier jobs of its application.",
        ),
    ] = False
    replans_on_news: Annotated[
        bool,
        Option(
            "--on-news",
            help="Replan a fixed pool at each event, too, as the controller does in a cloud.",
        ),
    ] = False
    device_batches: Annotated[
        list[str],
        Option(
            "--device-batch",
            help="Maximum number of examples on one device, as yolov3=8; may be repeated.",
            metavar="<application=number>",
        ),
    ] = field(default_factory=list)

    def check(self) -> None:
        """Check that every number is in its range.

        Raises:
            SpecError: a number is out of range; the message names the option.
        """
        least: Mapping[str, tuple[float, float]] = {
            "--interval": (self.interval_seconds, 1.0),
            "--restart-seconds": (self.restart_seconds, 0.0),
            "--max-instances": (self.most_instances, 1),
            "--step-error": (self.step_error, 0.0),
            "--noise-error": (self.noise_error, 0.0),
            "--seed": (self.seed, 0),
        }
        if self.save_seconds is not None and not 1.0 <= self.save_seconds < float("inf"):
            raise SpecError(f"{self.save_seconds} must be at least 1", "--restartable")
        for option, (value, minimum) in least.items():
            if not minimum <= value < float("inf"):
                raise SpecError(f"{value} must be at least {minimum:g}", option)
        limit_usd = self.fleet_usd_per_hour
        if limit_usd is not None and not 0 < limit_usd < float("inf"):
            raise SpecError(f"{limit_usd} must be above 0", "--fleet-usd-per-hour")
        from autoscaler.spec.objective_text import parse_objective_text

        deadlines = [
            parse_objective_text(self.objective or "balanced", now_seconds).deadline_seconds
            for now_seconds in (0.0, 1.0)
        ]
        if deadlines[0] is not None and deadlines[0] == deadlines[1]:
            message = "a simulation has no dates: write the time after submission, as 2h"
            raise SpecError(message, "--objective: deadline")
        if not 0 <= self.interference < 1:
            raise SpecError(f"{self.interference} must be from 0 to below 1", "--interference")

    @property
    def title(self) -> str:
        """Name of the study's or the workload's file, without its suffix; empty if none."""
        file = self.study or self.workload
        return "" if file is None else file.stem

    @property
    def most_device_batches(self) -> dict[str, int]:
        """Maximum number of examples on one device, by application.

        Raises:
            SpecError: a word of `device_batches` is not of the form ``application=number``.
        """
        maxima = {}
        for word in self.device_batches:
            application, _, examples = word.partition("=")
            if not application or not examples.isdigit() or int(examples) < 1:
                raise SpecError(
                    f'"{word}" must be application=number, as yolov3=8', "--device-batch"
                )
            maxima[application] = int(examples)
        return maxima


def takes_scenario(
    but: Collection[str] = (), **defaults: object
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of `SimulateOptions` to a command's options.

    The command gets a `SimulateOptions` as its first argument.

    Args:
        but: fields of `SimulateOptions` to leave out.
        defaults: default values by field, instead of those of `SimulateOptions`.
    """
    hints = get_type_hints(SimulateOptions, include_extras=True)
    used_fields = [option for option in fields(SimulateOptions) if option.name not in but]
    scenario_parameters = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(option.name, _default(option)),
            annotation=hints[option.name],
        )
        for option in used_fields
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *command_parameters = inspect.signature(command, eval_str=True).parameters.values()
        command_parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in command_parameters
        ]
        parameters = sorted(
            (*scenario_parameters, *command_parameters),
            key=lambda parameter: parameter.default is not parameter.empty,
        )

        def run(**values: Any) -> None:
            scenario = SimulateOptions(
                **{option.name: values.pop(option.name) for option in used_fields}
            )
            command(scenario, **values)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default
