"""Suite of end-to-end tests: real jobs on a cloud, driven from the shell as a user would.

Subclass `EndToEndSuite` and define fixtures `machines`, `deployment` and `two_regions` of a new
account or project, with the infrastructure that Terraform's module would create.
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
from tests.end_to_end.deployment import Deployment, ObservedJob
from tests.fakes.machines import Machines, NoticeSource

NOTICE_SECONDS: Final = 20.0


class EndToEndSuite:
    """End-to-end tests of one cloud.

    Attributes:
        storage: the prefix of the jobs' locations.
        forgery_error: the text of the error for a forged proof of identity.
        regions: the region of `deployment`, and the second one of `two_regions`.
    """

    storage: ClassVar[str]
    forgery_error: ClassVar[str]
    regions: ClassVar[tuple[str, str]]

    @pytest.mark.timeout(400)
    def test_a_job_grows_is_reclaimed_shrinks_and_ends(
        self, deployment: Deployment, machines: Machines
    ) -> None:
        hurry = deployment.submit("words")
        observed = ObservedJob(deployment, machines, "words")
        observed.wait_until_training(1)
        deployment.castor("set", "words", "min=2", "max=2")
        observed.wait_until_training(2)

        for source in NoticeSource:
            taken = machines.alive()[0]
            machines.reclaim(taken, NOTICE_SECONDS, source)
            observed.wait_until_training(2, without=taken)
            assert machines.machines[taken].had_notice is (source is NoticeSource.METADATA)

        deployment.end(signal.SIGKILL)
        deployment.start()
        deployment.castor("set", "words", "min=1", "max=1")
        observed.wait_until_training(1)

        hurry.touch()
        observed.wait_for(lambda: observed.job().phase.is_final, "the end of the job")
        observed.wait_for(lambda: not machines.remaining(), "the end of all instances")
        job = observed.job()
        assert job.phase is JobPhase.FINISHED, job.cause
        assert job.attempt == 1, "the job was not restarted"
        assert machines.launched == 2 + len(NoticeSource)
        assert job.checkpoint_directory.startswith(self.storage)
        assert job.report is not None and job.report.checkpoint.step == job.report.step
        assert deployment.castor("logs", "words").count("it begins") == 4, (
            "each instance has logged"
        )
        assert not (deployment.state / "jobs").exists(), (
            "no files of the job are on the controller's disk"
        )

    def test_a_check_finds_no_fault_in_the_infrastructure(
        self, deployment: Deployment, machines: Machines
    ) -> None:
        check = ("check", *deployment.sources, "--json")
        findings = json.loads(deployment.castor(*check))
        assert not machines.launched
        assert {finding["verdict"] for finding in findings} <= {"ok", "unproven"}, findings
        assert any(finding["subject"] == "launch of gpu, spot" for finding in findings)
        assert {"prices", "pool gpu"} <= {finding["subject"] for finding in findings}
        assert f"jobs' files are in {self.storage}" in findings[0]["text"]

        trial = json.loads(deployment.castor(*check, "--account", "--yes"))[len(findings) :]
        assert {finding["verdict"] for finding in trial} == {"ok"}, trial
        assert "it has ended" in trial[-1]["text"] and machines.launched == 1
        assert machines.alive() == []

    def test_a_drain_leaves_nothing(self, deployment: Deployment, machines: Machines) -> None:
        deployment.submit("words")
        observed = ObservedJob(deployment, machines, "words")
        observed.wait_until_training(1)
        printed = deployment.castor("drain", "--all", "-y")
        assert printed.endswith("nothing is left: no instance of this deployment runs\n")
        assert machines.alive() == []
        assert observed.job().phase is JobPhase.STOPPED
        observed.wait_for(lambda: not machines.remaining(), "the end of the instance")

    def test_a_stopped_job_is_fetched_from_storage_and_resumed(
        self, deployment: Deployment, machines: Machines, tmp_path: Path
    ) -> None:
        deployment.submit("words")
        observed = ObservedJob(deployment, machines, "words")
        observed.wait_until_training(1)
        deployment.castor("stop", "words", "--wait")
        deployment.castor("fetch", "words", "--to", tmp_path / "fetched", "--checkpoint")
        assert (tmp_path / "fetched" / "begun.txt").read_text() == "it has begun"
        (checkpoint,) = (tmp_path / "fetched").glob("step-*")
        assert (checkpoint / ".metadata").exists()
        saved = step_of(checkpoint.name)
        assert saved
        hurry = deployment.resume("words")
        observed.wait_until_training(1)
        hurry.touch()
        observed.wait_for(lambda: observed.job().phase.is_final, "the end of the job")
        job = observed.job()
        assert (job.id, job.phase) == ("words.2", JobPhase.FINISHED), job.cause
        assert f"goes on from {saved * 16.0}" in deployment.castor("logs", "words.2")
        observed.wait_for(lambda: not machines.remaining(), "the end of all instances")

    def test_an_instance_with_a_forged_identity_is_refused(
        self, deployment: Deployment, machines: Machines
    ) -> None:
        machines.forge(True)
        deployment.submit("words")
        observed = ObservedJob(deployment, machines, "words")

        def refusals() -> list[str]:
            return [event.text for event in observed.job().events if event.kind == "join refused"]

        observed.wait_for(refusals, "a refusal")
        assert self.forgery_error in refusals()[0]
        assert "join refused" in deployment.castor("status", "words")
        first = next(iter(machines.machines))
        observed.wait_for(lambda: first not in machines.alive(), "the instance to end itself")
        machines.forge(False)
        observed.wait_until_training(1)
        deployment.castor("drain", "--all", "-y")

    @pytest.mark.timeout(400)
    def test_a_job_changes_regions_and_a_lost_controller_is_replaced(
        self, two_regions: Deployment, machines: Machines
    ) -> None:
        """Run a job through a stockout, a reboot, a loss of the state and `castor adopt`."""
        home, other = self.regions
        two_regions.submit("words")
        observed = ObservedJob(two_regions, machines, "words")
        observed.wait_until_training(1)
        (rebooted,) = machines.alive()
        assert machines.region_of(rebooted) == home
        observed.wait_for(lambda: observed.saved_step() > 0, "a checkpoint")
        saved_step = observed.saved_step()

        machines.sell_out(home)
        machines.machines[rebooted].reboot()
        observed.wait_until_training(1, without=rebooted)
        (moved,) = machines.alive()
        assert machines.region_of(moved) == other
        observed.wait_for(lambda: observed.step() > saved_step, "progress after the checkpoint")

        lost = two_regions.client().fleet().controller
        two_regions.lose_state()
        two_regions.start()
        assert two_regions.client().fleet().controller != lost
        assert machines.alive() == [moved], "a new controller does not know the instance"
        two_regions.end()
        assert lost in two_regions.castor("adopt", lost)
        two_regions.start()
        wait_until(
            lambda: not machines.remaining(), seconds=90, description="the end of the instance"
        )
        printed = two_regions.castor("drain", "--all", "-y")
        assert printed.endswith("nothing is left: no instance of this deployment runs\n")
