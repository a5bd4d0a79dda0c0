"""Parameter values that a worker knows without a request to the driver.

Three kinds of values are known: enqueued ones, distributions with a single value, and, after the
first request, the values that the sampler has drawn jointly. The worker still reports each
suggestion to the driver, so that the trial's record is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.trial import Trial

from hpo import optuna_internals

_SCALARS: Final = (bool, int, float, str, type(None))


class UnknownParameter(Exception):
    """The value of a parameter is known to the driver only."""


@dataclass(slots=True)
class KnownParameters:
    """Parameter values that a worker knows of its trial, by parameter name.

    Attributes:
        fixed: enqueued values.
        sampled: jointly sampled values, with their distributions.
    """

    fixed: Mapping[str, Any] = field(default_factory=dict)
    sampled: dict[str, tuple[Any, BaseDistribution]] = field(default_factory=dict)

    def learn(self, sampled_values: Mapping[str, tuple[Any, str]]) -> None:
        """Add jointly sampled values from a response of the driver."""
        for name, (value, text) in sampled_values.items():
            self.sampled[name] = value, json_to_distribution(text)

    def value(self, name: str, distribution: BaseDistribution) -> Any:
        """Return the value that Optuna would suggest.

        Raises:
            UnknownParameter: the value is not known here.
        """
        if name in self.fixed:
            return _permitted(self.fixed[name], distribution)
        if distribution.single():
            return _only_value(distribution)
        value, sampled_from = self.sampled.get(name, (None, None))
        if sampled_from != distribution:
            raise UnknownParameter
        return _permitted(value, distribution)


def enqueued_values(system_attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the enqueued values of a trial, without values that JSON would change."""
    fixed = system_attributes.get(optuna_internals.FIXED_PARAMETERS, {})
    return {name: value for name, value in fixed.items() if isinstance(value, _SCALARS)}


def sampled_values(trial: Trial) -> dict[str, tuple[Any, str]]:
    """Return the jointly sampled values of a trial, with their distributions as JSON.

    Call this after the first suggestion of the trial; an earlier call triggers sampling.
    """
    space = trial.relative_search_space or {}
    return {
        name: (value, distribution_to_json(space[name]))
        for name, value in trial.relative_params.items()
        if name in space and isinstance(value, _SCALARS)
    }


def _only_value(distribution: BaseDistribution) -> Any:
    match distribution:
        case FloatDistribution(low=low) | IntDistribution(low=low):
            return low
        case CategoricalDistribution(choices=(choice,)):
            return choice
    raise UnknownParameter


def _permitted(value: Any, distribution: BaseDistribution) -> Any:
    """Return a value as Optuna suggests it.

    Raises:
        UnknownParameter: the distribution does not contain the value.
    """
    try:
        is_in = optuna_internals.holds(distribution, value)
    except (ValueError, TypeError):
        is_in = False
    if not is_in:
        raise UnknownParameter
    return int(value) if isinstance(distribution, IntDistribution) else value
