"""Join requests of agents, and the end of an instance that is refused."""

from __future__ import annotations

from pathlib import Path

from autoscaler.domain.job import JobSpec
from tests.node.site import STEADY, Site, wait_until


def test_an_agent_brings_the_word_of_its_cloud(site: Site, tmp_path: Path) -> None:
    identity = tmp_path / "identity"
    identity.write_text("signed\nby the cloud\n")
    site.variables["CASTOR_IDENTITY"] = str(identity)
    controller = site.serve(JobSpec("job", STEADY))
    site.launch()
    wait_until(lambda: controller.joins, "the agent")
    assert controller.joins[0].proof == "signed\nby the cloud\n"


def test_where_the_cloud_gives_none_it_brings_none(site: Site) -> None:
    controller = site.serve(JobSpec("job", STEADY))
    site.launch()
    wait_until(lambda: controller.joins, "the agent")
    assert controller.joins[0].proof is None


def test_an_instance_without_the_word_it_should_have_ends(site: Site, tmp_path: Path) -> None:
    site.variables["CASTOR_IDENTITY"] = str(tmp_path / "nowhere")
    controller = site.serve(JobSpec("job", STEADY))
    instance = site.launch()
    wait_until(lambda: instance.is_off, "the end of the instance")
    assert not controller.joins
    assert "nowhere: No such file or directory: the start script" in instance.console
