"""Studies as policies see them."""

from __future__ import annotations

from decimal import Decimal

from autoscaler.domain.snapshot import Snapshot, StudySnapshot
from autoscaler.domain.terms import StudyTerms, TrialProgress
from tests.controller.world import World


def seen(world: World) -> StudySnapshot:
    """The study of the snapshot that was planned from last."""
    (entry, *_) = world.store.journal.decisions(limit=1)
    snapshot: Snapshot = world.store.journal.inputs(entry)
    (study,) = snapshot.studies
    return study


def test_a_trial_whose_job_has_ended_is_one_that_has_ended(world: World) -> None:
    """Though its driver has not said so yet; and what it cost is the study's."""
    first, second = (world.submit(f"sweep-{number}", study="sweep") for number in range(2))
    world.store.studies.state("sweep", StudyTerms(to_begin=0))
    told = [(TrialProgress(job, 3.0), None) for job in (first, second)]
    world.store.studies.tell("sweep", told, world.clock.now())
    world.set_target(first, 1)
    world.tick(6)
    study = seen(world)
    assert [each.stands.has_ended for each in study.trials] == [False, False]
    before = Decimal(study.spent_usd)
    assert before > 0
    world.store.jobs.request_stop(first, world.clock.now())
    world.tick(6)
    world.set_target(second, 1)
    world.tick(6)
    study = seen(world)
    assert [each.stands.has_ended for each in study.trials] == [True, False]
    assert study.spent_usd > before


def test_a_trial_knows_when_its_size_last_changed(world: World) -> None:
    """A trial of a real run rests after a resize as one of a simulation does."""
    trial = world.submit("sweep-0", study="sweep")
    world.store.studies.state("sweep", StudyTerms(to_begin=0))
    world.store.studies.tell("sweep", [(TrialProgress(trial, 3.0), None)], world.clock.now())
    world.set_target(trial, 1)
    world.tick(6)
    world.set_target(trial, 2)
    world.tick(6)
    (entry, *_) = world.store.journal.decisions(limit=1)
    (job,) = world.store.journal.inputs(entry).jobs
    began = [held.training_seconds for held in world.training(trial)]
    assert len(began) == 2 and job.service.changed_seconds == max(began)  # type: ignore[type-var]
    assert job.service.started_seconds == min(began)  # type: ignore[type-var]
