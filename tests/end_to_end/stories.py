"""What becomes of a real job on a cloud, as a person would have it: from the shell.

Subclass `Stories` and give it fixtures `machines` and `deployment`: of an account, or a project,
that is new, with the ground that Terraform's module would lay.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import ClassVar, Final

import pytest

from autoscaler.domain.checkpoint import step_of
from autoscaler.domain.job import JobPhase
from tests.builders.waiting import wait_until
from tests.end_to_end.deployment import Deployment, Story
from tests.fakes.machines import Machines, Teller

NOTICE_SECONDS: Final = 20.0


class Stories:
    """`storage` is what places of jobs begin with, `distrust` is said of a forger's word."""

    storage: ClassVar[str]
    distrust: ClassVar[str]
    regions: ClassVar[tuple[str, str]]

    @pytest.mark.timeout(400)
    def test_a_job_grows_is_reclaimed_shrinks_and_ends(
        self, deployment: Deployment, machines: Machines
    ) -> None:
        hurry = deployment.submit("words")
        story = Story(deployment, machines, "words")
        story.trains_on(1)
        deployment.castor("set", "words", "min=2", "max=2")
        story.trains_on(2)

        for told_by in Teller:
            taken = machines.alive()[0]
            machines.reclaim(taken, NOTICE_SECONDS, told_by)
            story.trains_on(2, without=taken)
            assert machines.machines[taken].was_told is (told_by is Teller.METADATA)

        deployment.end(signal.SIGKILL)
        deployment.start()
        deployment.castor("set", "words", "min=1", "max=1")
        story.trains_on(1)

        hurry.touch()
        story.until(lambda: story.job().phase.is_final, "the job ends")
        story.until(lambda: not machines.remaining(), "everything is given back")
        job = story.job()
        assert job.phase is JobPhase.FINISHED, job.cause
        assert job.attempt == 1, "no step was lost, and nothing was started again"
        assert machines.launched == 2 + len(Teller)
        assert job.checkpoint_directory.startswith(self.storage)
        assert job.report is not None and job.report.checkpoint.step == job.report.step
        assert deployment.castor("logs", "words").count("it begins") == 4, "from each instance"
        assert not (deployment.state / "jobs").exists(), "nothing of it lies on a disk"

    @pytest.mark.timeout(100)
    def test_a_check_finds_the_ground_in_order(
        self, deployment: Deployment, machines: Machines
    ) -> None:
        words = ("check", *deployment.sources, "--json")
        findings = json.loads(deployment.castor(*words))
        assert not machines.launched
        assert {finding["verdict"] for finding in findings} <= {"ok", "unproven"}, findings
        assert any(finding["subject"] == "launch of gpu, spot" for finding in findings)
        assert {"prices", "pool gpu"} <= {finding["subject"] for finding in findings}
        assert f"jobs' files are in {self.storage}" in findings[0]["text"]

        trial = json.loads(deployment.castor(*words, "--account", "--yes"))[len(findings) :]
        assert {finding["verdict"] for finding in trial} == {"ok"}, trial
        assert "it has ended" in trial[-1]["text"] and machines.launched == 1
        assert machines.alive() == []

    @pytest.mark.timeout(200)
    def test_a_drain_leaves_nothing(self, deployment: Deployment, machines: Machines) -> None:
        deployment.submit("words")
        story = Story(deployment, machines, "words")
        story.trains_on(1)
        said = deployment.castor("drain", "--all")
        assert said.endswith("nothing is left: no instance of this deployment runs\n")
        assert machines.alive() == []
        assert story.job().phase is JobPhase.STOPPED
        story.until(lambda: not machines.remaining(), "it is gone")

    @pytest.mark.timeout(300)
    def test_a_stopped_job_is_fetched_from_storage_and_resumed(
        self, deployment: Deployment, machines: Machines, tmp_path: Path
    ) -> None:
        deployment.submit("words")
        story = Story(deployment, machines, "words")
        story.trains_on(1)
        deployment.castor("stop", "words", "--wait")
        deployment.castor("fetch", "words", "--to", tmp_path / "fetched", "--checkpoint")
        assert (tmp_path / "fetched" / "begun.txt").read_text() == "it has begun"
        (checkpoint,) = (tmp_path / "fetched").glob("step-*")
        assert (checkpoint / ".metadata").exists()
        saved = step_of(checkpoint.name)
        assert saved
        hurry = deployment.resume("words")
        story.trains_on(1)
        hurry.touch()
        story.until(lambda: story.job().phase.is_final, "the job ends")
        job = story.job()
        assert (job.id, job.phase) == ("words.2", JobPhase.FINISHED), job.cause
        assert f"goes on from {saved * 16.0}" in deployment.castor("logs", "words.2")
        story.until(lambda: not machines.remaining(), "everything is given back")

    @pytest.mark.timeout(300)
    def test_an_instance_that_the_cloud_does_not_vouch_for_is_not_let_in(
        self, deployment: Deployment, machines: Machines
    ) -> None:
        machines.forge(True)
        deployment.submit("words")
        story = Story(deployment, machines, "words")

        def refused() -> list[str]:
            return [each.text for each in story.job().events if each.kind == "join refused"]

        story.until(refused, "a refusal")
        assert self.distrust in refused()[0]
        assert "join refused" in deployment.castor("status", "words")
        first = next(iter(machines.machines))
        story.until(lambda: first not in machines.alive(), "its end, by itself")
        machines.forge(False)
        story.trains_on(1)
        deployment.castor("drain", "--all")

    @pytest.mark.timeout(400)
    def test_a_job_changes_regions_and_a_lost_controller_is_replaced(
        self, wide: Deployment, machines: Machines
    ) -> None:
        """Two regions: a stockout, a reboot, a loss of the state, and `castor adopt`."""
        home, other = self.regions
        wide.submit("words")
        story = Story(wide, machines, "words")
        story.trains_on(1)
        (rebooted,) = machines.alive()
        assert machines.region_of(rebooted) == home
        story.until(lambda: story.saved_step() > 0, "a checkpoint")
        saved_step = story.saved_step()

        machines.sell_out(home)
        machines.machines[rebooted].reboot()
        story.trains_on(1, without=rebooted)
        (moved,) = machines.alive()
        assert machines.region_of(moved) == other
        story.until(lambda: story.step() > saved_step, "progress after the checkpoint")

        lost = wide.client().fleet().controller
        wide.lose_state()
        wide.start()
        assert wide.client().fleet().controller != lost
        assert machines.alive() == [moved], "a new controller does not know the instance"
        wide.end()
        assert lost in wide.castor("adopt", lost)
        wide.start()
        wait_until(lambda: not machines.remaining(), seconds=90, what="the end of the instance")
        said = wide.castor("drain", "--all")
        assert said.endswith("nothing is left: no instance of this deployment runs\n")
