"""Agents whose instance goes from one trial to the next: real processes, a stand-in controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.instance import InstancePhase
from tests.node.site import LaunchedInstance, Site, wait_until
from tests.node.test_agent import job


def trial_that_has_ended(site: Site, tmp_path: Path) -> LaunchedInstance:
    files = tmp_path / "files"
    files.mkdir()
    (files / "data").write_text("of the study")
    site.serve(replace(job(STEPS="5"), study="s"), files=files)
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end of the first")
    return instance


@pytest.mark.parametrize("dies", [None, "before", "meanwhile"])
def test_an_instance_goes_on_with_the_next_trial(
    site: Site, tmp_path: Path, dies: str | None
) -> None:
    instance = trial_that_has_ended(site, tmp_path)
    controller = site.controller
    (first,) = instance.starts()
    (instance.work / "left").touch()
    if dies == "before":
        instance.kill_agent()
    controller.hand_over("next", STEPS="7")
    if dies == "meanwhile":
        wait_until(lambda: controller.assignments_asked > 0, "its asking for the work")
        instance.kill_agent()

    def of_next() -> list[InstancePhase]:
        return [each.phase for each in controller.reports if each.job == "next"]

    wait_until(lambda: InstancePhase.DRAINED in of_next(), "the end of the second")
    (second,) = instance.starts()
    assert second != first
    assert not (instance.work / "left").exists(), "its directory is fresh"
    assert (instance.work / "data").read_text() == "of the study"
    assert controller.bundles_fetched == 1 or dies == "meanwhile"
    assert controller.logs == {
        "job-0": b"attempt on 0\n",
        "job-0 of next": b"attempt on 0\n",
    }
    assert [each.step for each in controller.training][-1] == 7
    for report in controller.reports:
        if report.job == "next" and report.reports:
            assert report.started_seconds is not None
    assert not controller.failures


def test_work_that_can_not_be_had_is_not_asked_for_again_and_again(
    site: Site, tmp_path: Path
) -> None:
    instance = trial_that_has_ended(site, tmp_path)
    controller = site.controller
    controller.refuses_assignment = True
    controller.hand_over("next", STEPS="7")
    wait_until(lambda: controller.assignments_asked > 0, "its asking for the work")
    heard = len(controller.reports)
    wait_until(lambda: len(controller.reports) > heard + 6, "heartbeats")
    assert controller.assignments_asked <= 2, "a second time where an answer came too late"
    assert {each.job for each in controller.reports} == {"job"}
    controller.refuses_assignment = False
    controller.want(attempt=2)
    wait_until(lambda: controller.reports[-1].is_complete and len(instance.starts()) == 1, "it")
    wait_until(lambda: controller.reports[-1].job == "next", "its work at the next attempt")
