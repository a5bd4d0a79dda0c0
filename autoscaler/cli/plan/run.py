"""Predictions of `castor plan`, by a running controller or from files alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.simulate.market import equipment_of
from autoscaler.cli.submit.submission import require_bundle
from autoscaler.cli.tables import money, number, words_table
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.shards import ShardChoice
from autoscaler.service.jobs.plans import plan_ahead
from autoscaler.simulator.profiles.profiles import read_profiles
from autoscaler.simulator.workloads.profiled_memory import recollection
from autoscaler.spec.job_file import load_job
from autoscaler.spec.objective_text import default_budget_words, describe_objective
from autoscaler.spec.offers_file import OffersFile, load_offers
from autoscaler.spec.quantities import format_duration, format_money
from autoscaler.wire.connection import connect
from autoscaler.wire.plan_messages import PlanView, ProspectView

_CHOSEN_MARK, _FALLBACK_MARK = "<- your objective", "<- chosen instead"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of `castor plan`.

    Attributes:
        job: job file.
        offers: offers file; None: ask the running controller.
        profiles: directories of application profiles; used with `offers` only.
        application: profile to use; None: the one of the job's program.
    """

    job: Path
    offers: Path | None = None
    profiles: Sequence[Path] = ()
    application: str | None = None


def plan_of(options: PlanOptions, now_seconds: float) -> PlanView:
    """Return the predicted cost and duration of a job that is submitted now.

    Raises:
        SpecError: a file can't be used, or the job's files can't be packed.
        Unavailable: no controller answers, and `options` has no offers file.
    """
    job_file = load_job(options.job, now_seconds)
    require_bundle(job_file)
    spec = job_file.spec
    if options.offers is None:
        if options.profiles or options.application:
            raise SpecError(
                "needs --offers, which maps each offer's devices to a profile", "--profiles"
            )
        return _plan_by_controller(spec)
    offers = load_offers(options.offers, now_seconds)
    memory = _memory(options, spec, offers)
    return plan_ahead(spec, offers.offers, offers.limits, memory, now_seconds)


def print_plan(view: PlanView, now_seconds: float) -> None:
    """Print the time-cost frontier as a table, with the allocation that the objective chooses.

    If the job's length is unknown, print prices and the first decision.
    """
    if view.unknown is not None:
        _print_rates(view, now_seconds)
        return
    parts: list[RenderableType] = [
        Text(f"{view.job}: {objective_words(view, now_seconds)}", style="bold"),
        Text(view.known, style="dim"),
        Text(),
        _table(view),
        Text(),
        *_layout(view),
    ]
    if view.shortfall is not None:
        parts.append(Text(view.shortfall, style="red"))
    elif view.chance is not None:
        parts.append(Text(f"constraints are kept in {view.chance:.0%} of cases"))
    if view.chosen is not None and view.chosen.seconds_band and view.chosen.usd_band:
        parts.append(Text(_band_words(view.chosen.seconds_band, view.chosen.usd_band)))
    parts.append(Text(f"first decision: {view.decision}"))
    parts += _default_budget(view)
    print_whole(Group(*parts))


def _print_rates(view: PlanView, now_seconds: float) -> None:
    right = ("devices", "price", "useful\nexamples/s")
    table = words_table("allocation", *right, wraps=("allocation",), right=right)
    for rate in view.rates:
        speed = rate.examples_per_second
        table.add_row(
            _size_words(rate.allocation.instances, rate.allocation.offer),
            str(rate.allocation.devices),
            f"{money(rate.usd_per_hour)}/h",
            "not measured" if speed is None else number(speed),
        )
    heading = f"{view.job}: {objective_words(view, now_seconds)}"
    known, decision = Text(view.known, style="dim"), Text(f"first decision: {view.decision}")
    heading_line = Text(heading, style="bold")
    print_whole(
        Group(
            heading_line,
            known,
            Text(),
            table,
            Text(),
            *_layout(view),
            decision,
            *_default_budget(view),
            Text(view.unknown or ""),
        )
    )


def _layout(view: PlanView) -> list[RenderableType]:
    """Return the comparison of shards, and the offers that can't hold the job; maybe nothing."""
    lines: list[RenderableType] = []
    if view.shards is not None:
        lines += [_shard_table(view.shards), Text(str(view.shards)), Text()]
    lines += [Text(f"can't hold it: {offer}", style="dim") for offer in view.unfit]
    return lines


def _shard_table(choice: ShardChoice) -> Table:
    right = ("price", "median\ntime", "median\ncost", "with the worth\nof time")
    table = words_table("shard", "allocation", *right, wraps=("allocation",), right=right)
    for forecast in choice.forecasts:
        allocation, cost_usd = forecast.allocation, forecast.cost_usd
        if allocation is None or cost_usd is None:
            table.add_row(str(forecast.shard), "fits no permitted offer", "", "", "", "")
            continue
        table.add_row(
            str(forecast.shard),
            _size_words(allocation.instances, allocation.offer),
            f"{money(forecast.usd_per_hour)}/h",
            "unknown" if forecast.seconds is None else format_duration(forecast.seconds),
            "unknown" if forecast.usd is None else money(forecast.usd),
            money(cost_usd) if forecast.usd is not None else f"{money(cost_usd)} a million",
            style="bold" if forecast.shard == choice.shard else "",
        )
    return table


def _default_budget(view: PlanView) -> list[RenderableType]:
    """Return the line of the default budget; empty if the objective has none."""
    words = default_budget_words(view.objective)
    return [] if words is None else [Text(words)]


def _band_words(seconds: tuple[float, float], usd: tuple[float, float]) -> str:
    times = " to ".join(format_duration(bound) for bound in seconds)
    return f"9 in 10 such jobs take {times} and cost {money(usd[0])} to {money(usd[1])}"


def allocation_words(prospect: ProspectView) -> str:
    """Return words such as ``2 x g5.xlarge``, or two sizes and the first's share of the work."""
    if prospect.first == prospect.then:
        return _size_words(prospect.first.instances, prospect.first.offer)
    first, then = (
        _size_words(allocation.instances, allocation.offer)
        for allocation in (prospect.first, prospect.then)
    )
    return f"{first} for {prospect.first_share:.0%}, then {then}"


def _size_words(instances: int, offer: str) -> str:
    return f"{instances} x {offer}"


def _plan_by_controller(spec: JobSpec) -> PlanView:
    try:
        return connect().plan(spec)
    except Unavailable as error:
        raise Unavailable(f"{error}; or name an offers file: --offers FILE") from None


def _memory(options: PlanOptions, spec: JobSpec, offers: OffersFile) -> ProgramMemory | None:
    if not options.profiles:
        return None
    profiles = read_profiles(*options.profiles)
    name = options.application or spec.program_name
    if name not in profiles:
        message = f"{name!r} has no profile; profiles: {', '.join(sorted(profiles))}"
        raise SpecError(message, "--application")
    equipment = equipment_of(offers).values()
    profile = profiles[name]
    if not any(item.profile_kind in profile.kinds for item in equipment):
        raise SpecError(
            f"{name} was profiled on {', '.join(sorted(profile.kinds))}, which no offer has: "
            "name the matching kind in the offers file (profile: KIND)",
            "offers",
        )
    return recollection(profile, equipment, spec.batch)


def objective_words(view: PlanView, now_seconds: float) -> str:
    """Return the objective in words.

    A name such as `balanced` is followed by the value of time that it stands for.
    """
    objective = view.objective
    words = describe_objective(objective, now_seconds)
    if objective.deadline_seconds is not None or objective.budget_usd is not None:
        return words
    if objective.value_of_time_usd_per_hour is not None:
        return words
    return f"{words}: value of time {format_money(round(view.value_of_time_usd_per_hour, 2))}/h"


def is_chosen(row: ProspectView, view: PlanView) -> bool:
    """Return whether the objective chooses the allocation of this row."""
    chosen = view.chosen
    return chosen is not None and (row.first, row.then) == (chosen.first, chosen.then)


def _table(view: PlanView) -> Table:
    # The trailing space makes headings unique: `words_table` identifies a column by its heading.
    times = ("value of\ntime from", "median\ntime", "90 %\nwithin ")
    right = ("devices", *times, "median\ncost", "90 %\nwithin")
    table = words_table("allocation", *right, wraps=("allocation",), right=right)
    rows = list(view.frontier)
    if view.chosen is not None and not any(is_chosen(row, view) for row in rows):
        rows.append(view.chosen)
    mark = _CHOSEN_MARK if view.shortfall is None else _FALLBACK_MARK
    for row in rows:
        _add_row(table, row, mark if is_chosen(row, view) else "")
    return table


def _add_row(table: Table, row: ProspectView, mark: str) -> None:
    least_value = row.from_value_of_time_usd_per_hour
    devices = dict.fromkeys(allocation.devices for allocation in (row.first, row.then))
    marks = [mark] if mark else []
    if not row.measured:
        marks.append("not measured")
    table.add_row(
        "\n".join((allocation_words(row), *marks)),
        ", ".join(map(str, devices)),
        "" if least_value is None else f"${number(least_value)}/h",
        format_duration(row.seconds),
        format_duration(row.seconds_90),
        money(row.usd),
        money(row.usd_90),
        style="bold" if mark else "",
    )
