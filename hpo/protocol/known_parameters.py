"""Parameters of a trial whose values are known before they are suggested.

Three kinds need no question to the driver, as the sampler is not asked for them one by one: those
that were enqueued with the trial, those with one possible value, and, once the sampler was asked
for the first time, those that it samples together. They are told to the driver as they are
suggested, so that the record of the trial is the same.
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


class NotForeseen(Exception):
    """Only the driver can say what the value of a parameter is."""


@dataclass(slots=True)
class Foreseen:
    """Values that a worker knows of its trial, by the names of parameters.

    Attributes:
        fixed: those that were enqueued.
        sampled: those that the sampler has sampled together, with their distributions.
    """

    fixed: Mapping[str, Any] = field(default_factory=dict)
    sampled: dict[str, tuple[Any, BaseDistribution]] = field(default_factory=dict)

    def learn(self, told: Mapping[str, tuple[Any, str]]) -> None:
        """Take in what the driver told as it suggested another parameter."""
        for name, (value, text) in told.items():
            self.sampled[name] = value, json_to_distribution(text)

    def value(self, name: str, distribution: BaseDistribution) -> Any:
        """Return what Optuna would suggest.

        Raises:
            NotForeseen: that is not known.
        """
        if name in self.fixed:
            return _permitted(self.fixed[name], distribution)
        if distribution.single():
            return _only_value(distribution)
        value, sampled_from = self.sampled.get(name, (None, None))
        if sampled_from != distribution:
            raise NotForeseen
        return _permitted(value, distribution)


def fixed_values(system_attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the enqueued values of a trial, but for those that JSON would change."""
    fixed = system_attributes.get(optuna_internals.FIXED_PARAMETERS, {})
    return {name: value for name, value in fixed.items() if isinstance(value, _SCALARS)}


def sampled_values(trial: Trial) -> dict[str, tuple[Any, str]]:
    """Return what the sampler has sampled together for a trial, with the distributions as JSON.

    To be called once the sampler was asked for a parameter of the trial: it is asked otherwise.
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
    raise NotForeseen


def _permitted(value: Any, distribution: BaseDistribution) -> Any:
    """Return a value as Optuna suggests it, if the distribution holds it."""
    try:
        is_in = optuna_internals.holds(distribution, value)
    except (ValueError, TypeError):
        is_in = False
    if not is_in:
        raise NotForeseen
    return int(value) if isinstance(distribution, IntDistribution) else value
