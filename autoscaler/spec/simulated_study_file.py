"""Files of studies to simulate: YAML with learning curves, search, scaling and market.

::

    name: digits
    curves: curves.csv            # trial,epoch,value,seconds and hyper-parameters; row: a report
    direction: maximize           # default: minimize
    search:
      synchronous: {configurations: 27, eta: 3, rungs: [2, 6, 18, 54]}
      # or asynchronous: {trials: 60, min_resource: 2, eta: 3, at_once: 8}
    scaling:
      speedup: {1: 1, 2: 1.9, 4: 3.5, 8: 6}       # devices: speed relative to one device
      # or from a profile: {profiles: DIR, application: bert, batch: batch_size}
    offers: offers.yaml           # overridden by --offers or --cluster
    objective: {deadline: 2h}     # of the whole study; also a budget or a value of time
    instances: {max: 8}           # of a trial
    start: 30s                    # from a ready instance to a trial's first step
    pause: 60s                    # of a trial that is resized
    handover: 10s                 # from another trial's instance to the first step

Paths are relative to this file. `batch` is the hyper-parameter with a trial's batch, in examples
of the application. With `initial_batch: 16`, it is in units of which 16 stand for the smallest
batch of the profile. If a profile has several kinds of device, `kind` is that of the curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.spec.form_file import located, read_document, validated
from autoscaler.spec.forms import Form, Problem
from autoscaler.spec.job_form import Count, InstancesForm, Text
from autoscaler.spec.located_yaml import LocatedYaml
from autoscaler.spec.objective_text import ObjectiveForm, ShortObjective
from autoscaler.spec.quantities import Duration

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Reduction = Annotated[int, Field(ge=2)]


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """Search of a study: synchronous halving with `rungs`, asynchronous halving without.

    Attributes:
        trials: number of trials.
        eta: reduction factor; the best 1 of `eta` trials goes on at a rung.
        rungs: epochs of the rungs, rising; empty for an asynchronous search.
        min_resource: epochs of the first rung of an asynchronous search.
        at_once: maximum number of parallel trials; None: unlimited.
    """

    trials: int
    eta: int
    rungs: tuple[float, ...] = ()
    min_resource: float = 1.0
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Scaling of trials with devices: a table, or the profile of an application.

    Attributes:
        speedup: pairs of devices and speed relative to one device; empty with `profiles`.
        profiles: directory of application profiles; None with `speedup`.
        application: name of the profile.
        kind: kind of device of the curves; None: the only one of the profile.
        batch: hyper-parameter with the batch of a trial; None: the profile's smallest batch.
        initial_batch: value of `batch` for the profile's smallest batch; None: `batch` is in
            examples.
    """

    speedup: tuple[tuple[int, float], ...] = ()
    profiles: Path | None = None
    application: str = ""
    kind: str | None = None
    batch: str | None = None
    initial_batch: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedStudySpec:
    """Content of a file of a study to simulate; None for keys that the file leaves out."""

    path: Path
    name: str
    curves: Path
    maximize: bool
    search: SearchSpec
    scaling: ScalingSpec
    objective: Objective
    job_objective: Objective
    instances: InstanceBounds
    offers: Path | None = None
    start_seconds: float | None = None
    pause_seconds: float | None = None
    handover_seconds: float | None = None


def load_simulated_study(path: Path) -> SimulatedStudySpec:
    """Read a file of a study to simulate. Deadlines count from the start of the simulation.

    Raises:
        SpecError: as `load_job`.
    """
    document = read_document(path, "a study file for simulations (docs/simulator.md)")
    form = validated(document, _StudyForm, {"now_seconds": 0.0})
    _require_durations(document, form)
    folder = path.resolve().parent
    return SimulatedStudySpec(
        path=path,
        name=form.name,
        curves=folder / form.curves,
        maximize=form.direction == "maximize",
        search=form.search.spec(),
        scaling=form.scaling.spec(folder),
        objective=form.objective.objective(),
        job_objective=form.job_objective.objective(),
        instances=form.instances.spec(),
        offers=None if form.offers is None else folder / form.offers,
        start_seconds=form.start,
        pause_seconds=form.pause,
        handover_seconds=form.handover,
    )


def _require_durations(document: LocatedYaml, form: _StudyForm) -> None:
    """Check that no deadline is a date, by parsing the file at two times.

    Raises:
        SpecError: a deadline is a date.
    """
    later = validated(document, _StudyForm, {"now_seconds": 1.0})
    pairs = {
        "objective": (form.objective, later.objective),
        "job_objective": (form.job_objective, later.job_objective),
    }
    for key, (now, then) in pairs.items():
        if now.deadline is not None and now.deadline == then.deadline:
            message = "a simulation has no dates: write the time that the study may take, as 2h"
            raise located([Problem((key, "deadline"), message)], document)


class _SynchronousForm(Form):
    configurations: Count
    eta: Reduction
    rungs: Annotated[tuple[Positive, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_rising(self) -> Self:
        if list(self.rungs) != sorted(set(self.rungs)):
            raise ValueError("rungs: write the epochs of each in rising order, as [2, 6, 18]")
        return self


class _AsynchronousForm(Form):
    trials: Count
    min_resource: Positive
    eta: Reduction
    at_once: Count | None = None


class _SearchForm(Form):
    synchronous: _SynchronousForm | None = None
    asynchronous: _AsynchronousForm | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.synchronous is None) == (self.asynchronous is None):
            raise ValueError("write one of synchronous and asynchronous")
        return self

    def spec(self) -> SearchSpec:
        """Return the search as an object of the simulation."""
        if self.synchronous is not None:
            synchronous = self.synchronous
            return SearchSpec(synchronous.configurations, synchronous.eta, synchronous.rungs)
        assert self.asynchronous is not None
        rule = self.asynchronous
        return SearchSpec(rule.trials, rule.eta, (), rule.min_resource, rule.at_once)


class _ScalingForm(Form):
    speedup: dict[Count, Positive] | None = None
    profiles: Text | None = None
    application: Text | None = None
    kind: Text | None = None
    batch: Text | None = None
    initial_batch: Positive | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.speedup is None) == (self.profiles is None):
            raise ValueError("write one of speedup and profiles: the scaling with devices")
        if (self.profiles is None) != (self.application is None):
            raise ValueError("profiles and application need each other: set both or none")
        if self.speedup is not None and (self.kind or self.batch or self.initial_batch):
            raise ValueError("kind, batch and initial_batch need profiles")
        if self.initial_batch is not None and self.batch is None:
            raise ValueError("initial_batch needs batch")
        return self

    def spec(self, folder: Path) -> ScalingSpec:
        """Return the scaling as an object of the simulation; paths are relative to `folder`."""
        return ScalingSpec(
            speedup=tuple(sorted((self.speedup or {}).items())),
            profiles=None if self.profiles is None else folder / self.profiles,
            application=self.application or "",
            kind=self.kind,
            batch=self.batch,
            initial_batch=self.initial_batch,
        )


class _StudyForm(Form):
    name: Text
    curves: Text
    direction: Literal["minimize", "maximize"] = "minimize"
    search: _SearchForm
    scaling: _ScalingForm
    offers: Text | None = None
    objective: ShortObjective = ObjectiveForm()
    job_objective: ShortObjective = ObjectiveForm()
    instances: InstancesForm = InstancesForm()
    start: Duration | None = None
    pause: Duration | None = None
    handover: Duration | None = None
