"""Study of `castor simulate --study FILE`, read from the files that the study file names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.cli.simulate.market import SimulatedMarket
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles.curves import RecordedCurve, features, read_curves
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.studies.searches import AsynchronousHalving, SynchronousHalving
from autoscaler.simulator.studies.study import (
    BatchOfTrials,
    SimulatedStudy,
    application_of,
    trials_of,
)
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.simulated_study_file import (
    ScalingSpec,
    SearchSpec,
    SimulatedStudySpec,
    load_simulated_study,
)


def as_the_study_says(options: SimulateOptions) -> SimulateOptions:
    """Return the options completed by the market and restart time of the study's file.

    Raises:
        SpecError: the file can't be used, or an option is for workloads only.
    """
    if options.study is None:
        return options
    if options.workload is not None or options.profiles or options.regimes is not None:
        raise SpecError(
            "the study's file names its inputs: leave out --workload, --profiles and --regimes",
            "--study",
        )
    spec = load_simulated_study(options.study)
    is_named = options.offers is not None or options.cluster is not None
    pause_seconds = spec.pause_seconds
    return replace(
        options,
        offers=options.offers if is_named else spec.offers,
        restart_seconds=options.restart_seconds if pause_seconds is None else pause_seconds,
    )


def read_study(
    options: SimulateOptions, market: SimulatedMarket
) -> tuple[SimulatedStudy, SimulatedMarket]:
    """Return the study with curves drawn by the seed, and the market with its kinds of device.

    Raises:
        SpecError: a file can't be used or contradicts another; the message names file and key.
    """
    assert options.study is not None
    spec = load_simulated_study(options.study)
    curves = read_curves(spec.curves)
    chosen = _drawn_curves(spec, curves, options.seed)
    application, market = _application(spec.scaling, market)
    batch = BatchOfTrials(spec.scaling.batch, spec.scaling.initial_batch)
    trials = trials_of(chosen, application, batch, _kind(spec.scaling, application))
    objective = spec.objective
    if options.objective is not None:
        objective = parse_objective_text(options.objective, 0.0)
    study = SimulatedStudy(
        name=spec.name,
        trials=trials,
        rule=_rule(spec.search),
        objective=objective,
        job_objective=spec.job_objective,
        instances=spec.instances,
        maximize=spec.maximize,
        start_seconds=spec.start_seconds,
        handover_seconds=spec.handover_seconds,
        features=tuple(features(curve, curves) for curve in chosen),
    )
    return study, market


def _drawn_curves(
    spec: SimulatedStudySpec, curves: Sequence[RecordedCurve], seed: int
) -> list[RecordedCurve]:
    """Draw a curve for each trial of the search, without replacement.

    Raises:
        SpecError: there are too few curves, or a curve ends before the last rung.
    """
    needed, source = spec.search.trials, str(spec.curves)
    if len(curves) < needed:
        raise SpecError(f"has {len(curves)} trials, but the search needs {needed}", source)
    last = spec.search.rungs[-1] if spec.search.rungs else spec.search.min_resource
    for curve in curves:
        if curve.epochs[-1] < last:
            message = (
                f"trial {curve.trial} ends at {curve.epochs[-1]:g}, before the rung at {last:g}"
            )
            raise SpecError(message, f"{source}: epoch")
    order = np.random.default_rng(seed).permutation(len(curves))
    return [curves[index] for index in order[:needed].tolist()]


def _rule(search: SearchSpec) -> SynchronousHalving | AsynchronousHalving:
    if search.rungs:
        return SynchronousHalving(search.trials, search.eta, search.rungs)
    return AsynchronousHalving(search.trials, search.min_resource, search.eta, search.at_once)


def _application(scaling: ScalingSpec, market: SimulatedMarket) -> tuple[Profile, SimulatedMarket]:
    if scaling.profiles is None:
        kinds = sorted({item.profile_kind for item in market.equipment.values()})
        return application_of("trial", dict(scaling.speedup), kinds), market
    profiles = read_profiles(scaling.profiles)
    application = profiles.get(scaling.application)
    if application is None:
        known = ", ".join(sorted(profiles))
        raise SpecError(
            f"{scaling.application!r} has no profile; profiles: {known}", "application"
        )
    return application, market.as_profiled({scaling.application: application})


def _kind(scaling: ScalingSpec, application: Profile) -> str:
    """Return the kind of device that the seconds of the curves were measured on.

    Raises:
        SpecError: the file names no kind although there are several, or names an unknown kind.
    """
    kinds = sorted(application.kinds)
    if scaling.profiles is None or (scaling.kind is None and len(kinds) == 1):
        return kinds[0]
    if scaling.kind not in application.kinds:
        problem = "is missing" if scaling.kind is None else f"{scaling.kind!r} was not profiled"
        raise SpecError(
            f"{problem}: name the kind that the curves were measured on: {', '.join(kinds)}",
            "kind",
        )
    return scaling.kind
