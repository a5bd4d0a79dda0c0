"""Samplers and pruners by their names in study files, and the packages that they need."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, Final

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from autoscaler.domain.errors import SpecError
from autoscaler.domain.study import Method, MethodOption
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from hpo.storage.retrying import one_line

SAMPLERS: Final[Mapping[str, type[BaseSampler]]] = {
    "tpe": optuna.samplers.TPESampler,
    "random": optuna.samplers.RandomSampler,
    "cma_es": optuna.samplers.CmaEsSampler,
    "gp": optuna.samplers.GPSampler,
    "qmc": optuna.samplers.QMCSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "nsga3": optuna.samplers.NSGAIIISampler,
    "grid": optuna.samplers.GridSampler,
    "brute_force": optuna.samplers.BruteForceSampler,
    "partial_fixed": optuna.samplers.PartialFixedSampler,
}
PRUNERS: Final[Mapping[str, type[BasePruner]]] = {
    "none": optuna.pruners.NopPruner,
    "median": optuna.pruners.MedianPruner,
    "percentile": optuna.pruners.PercentilePruner,
    "successive_halving": optuna.pruners.SuccessiveHalvingPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "synchronous_halving": SynchronousHalvingPruner,
    "threshold": optuna.pruners.ThresholdPruner,
    "wilcoxon": optuna.pruners.WilcoxonPruner,
    "patient": optuna.pruners.PatientPruner,
}
# Packages that Optuna imports at the first suggestion of a sampler or decision of a pruner.
_PACKAGES_OF: Final[Mapping[type[object], tuple[str, ...]]] = {
    optuna.samplers.CmaEsSampler: ("cmaes",),
    optuna.samplers.GPSampler: ("scipy", "torch"),
    optuna.samplers.QMCSampler: ("scipy",),
    optuna.pruners.WilcoxonPruner: ("scipy",),
}
# Types of options in Optuna's signatures: their names in messages and the types of file values.
_TYPES: Final[Mapping[str, tuple[str, tuple[type[object], ...]]]] = {
    "bool": ("true or false", (bool,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("a text", (str,)),
    "None": ("null", (type(None),)),
    "dict[str, Any]": ("a mapping", (dict,)),
    "Mapping[str, Sequence[GridValueType]]": ("a mapping of names to lists", (dict,)),
}


def create_sampler(method: Method | None) -> BaseSampler | None:
    """Return the sampler that a study file names; None for Optuna's default.

    Raises:
        SpecError: the sampler is unknown, lacks a package, or does not take an option.
    """
    sampler: BaseSampler | None = _made(method, SAMPLERS, "sampler")
    return sampler


def create_pruner(method: Method | None) -> BasePruner | None:
    """Return the pruner that a study file names; None for Optuna's default.

    Raises:
        SpecError: the pruner is unknown, lacks a package, or does not take an option.
    """
    pruner: BasePruner | None = _made(method, PRUNERS, "pruner")
    return pruner


def require_packages(study: optuna.Study) -> None:
    """Check that the packages of a study's sampler and pruner are installed.

    Optuna itself imports them in the first trial, whose instance costs money.

    Raises:
        SpecError: a package is missing; `field` is sampler or pruner.
    """
    for field, method in (("sampler", study.sampler), ("pruner", study.pruner)):
        for part in _parts(method, {}):
            _require_packages(type(part), type(part).__name__, field)


def _parts(method: object, seen: dict[int, object]) -> Iterator[object]:
    """Yield a sampler or pruner and the ones nested in it, each once."""
    if id(method) in seen:
        return
    seen[id(method)] = method
    yield method
    for held in getattr(method, "__dict__", {}).values():
        if isinstance(held, BaseSampler | BasePruner):
            yield from _parts(held, seen)


def _require_packages(kind: type[object], name: str, field: str) -> None:
    for base in kind.__mro__:
        for package in _PACKAGES_OF.get(base, ()):
            if find_spec(package) is None:
                raise SpecError(f"{name} needs a package: pip install {package}", field)


def _made(method: Method | None, known: Mapping[str, Any], field: str) -> Any:
    if method is None:
        return None
    if method.name not in known:
        raise SpecError(
            f"{method.name!r}{_meant(method.name, known)} is none of {', '.join(known)}", field
        )
    kind = known[method.name]
    _require_packages(kind, method.name, field)
    taken = inspect.signature(kind).parameters
    options = {}
    for option, value in method.options.items():
        if option not in taken:
            raise SpecError(
                f"{method.name} takes no {option!r}{_meant(option, taken)}: it takes "
                f"{', '.join(taken) or 'no options'}",
                field,
            )
        place = f"{field}.{method.name}.{option}"
        options[option] = _option(taken[option], value, place)
    try:
        return kind(**options)
    except Exception as error:  # each sampler and pruner raises its own errors
        raise SpecError(f"{method.name}: {one_line(error)}", field) from error


def _option(parameter: inspect.Parameter, value: MethodOption, place: str) -> Any:
    """Return the value of an option as Optuna takes it.

    Args:
        parameter: the option in the signature of its sampler or pruner.
        value: the value in the file.
        place: the path of the option in the file, for errors.

    Raises:
        SpecError: the value has a wrong type, or a file can't express the option.
    """
    annotation = parameter.annotation
    written = getattr(annotation, "__name__", None) or str(annotation)
    kinds = [part.strip() for part in written.split(" | ")]
    if value is None and "None" in kinds:
        return None
    if "BaseSampler" in kinds:
        return create_sampler(_nested(value, place))
    if "BasePruner" in kinds:
        return create_pruner(_nested(value, place))
    known = [_TYPES[kind] for kind in kinds if kind in _TYPES]
    if not known or known == [_TYPES["None"]]:
        raise SpecError("is a Python object: run the study with hpo.optimize", place)
    is_bool_alone = isinstance(value, bool) and "bool" not in kinds
    if is_bool_alone or not any(isinstance(value, types) for _, types in known):
        wanted = " or ".join(words for words, _ in known)
        raise SpecError(f"must be {wanted}, not {_shown(value)}", place)
    return value


def _nested(value: MethodOption, place: str) -> Method:
    """Return the nested sampler or pruner that an option names."""
    if isinstance(value, str):
        return Method(value)
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, options),) = value.items()
        if options is None or isinstance(options, Mapping):
            return Method(str(name), options or {})
    raise SpecError("must be a name, or a mapping of a name to its options", place)


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _shown(value: MethodOption) -> str:
    match value:
        case str():
            return f'"{value:.60}"'
        case Mapping():
            return "a mapping"
        case tuple() | list():
            return "a list"
    return f"{value!s:.60}"
