"""Commands that stay, while their controller comes and goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.text import Text

from autoscaler.cli.live import show
from autoscaler.cli.submit.waiting import checkpoint_of, drain, wait_for_end
from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import NotFound, Unavailable
from autoscaler.domain.job import JobPhase, JobSpec
from tests.controller.world import World
from tests.service.conftest import served


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            SimpleNamespace(name="step-7"),
            "the newest checkpoint is step-7 in /checkpoints: castor",
        ),
        (NotFound("none"), "no checkpoint was saved"),
        (Unavailable("away"), "checkpoints, if any were saved, are in /checkpoints"),
    ],
)
def test_the_checkpoint_of_an_ended_job_is_asked_for(answer: object, words: str) -> None:
    def checkpoint(name: str) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = SimpleNamespace(checkpoint=checkpoint)
    job = SimpleNamespace(
        id="j", phase=JobPhase.STOPPED, report=None, checkpoint_directory="/checkpoints"
    )
    assert checkpoint_of(client, job).startswith(words)  # type: ignore[arg-type]


class Emptying:
    """A controller that has less at each turn; in some it is away."""

    def __init__(self, clock: VirtualClock, *turns: Mapping[str, object] | None) -> None:
        self._clock = clock
        self._turns = list(turns)
        self.drained = 0

    def drain(self) -> None:
        self.drained += 1

    def fleet(self) -> SimpleNamespace:
        self._clock.advance(1.0)
        turn = self._turns.pop(0)
        if turn is None:
            raise Unavailable("away")
        nothing = {"instances": (), "strays": frozenset(), "silent": frozenset(), "trouble": None}
        return SimpleNamespace(ticked_seconds=self._clock.now(), **{**nothing, **turn})


def test_a_drain_ends_once_nothing_is_left_twice_in_a_row() -> None:
    clock, told = VirtualClock(), list[str]()
    silent = {"silent": frozenset({"aws"}), "trouble": "aws: throttled"}
    turns = ({"instances": ("a", "b")}, {"instances": ("a", "b")}, None, {}, silent)
    controller = Emptying(clock, *turns, {"strays": frozenset({"i-1"})}, {}, {})
    drain(controller, told.append, clock)  # type: ignore[arg-type]
    assert told == [
        "2 instances",
        "the controller does not answer",
        "aws does not list instances: aws: throttled",
        "i-1, which ran without an order",
    ]
    assert controller.drained == 9


def test_a_drain_without_a_controller_says_so() -> None:
    class Absent:
        def drain(self) -> None:
            raise Unavailable("away")

    with pytest.raises(Unavailable):
        drain(Absent(), print, VirtualClock())  # type: ignore[arg-type]


def test_a_view_stays_while_no_controller_answers(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([Text("as it is"), Unavailable("away"), Text("as it is later"), None])

    def render() -> Text:
        match next(moments):
            case Text() as text:
                return text
            case Unavailable() as error:
                raise error
        raise KeyboardInterrupt

    show(render, True, VirtualClock())
    assert "as it is later" in capsys.readouterr().out


def test_the_end_of_a_job_is_awaited_even_if_a_new_one_has_its_name(
    tmp_path: Path, template: Path
) -> None:
    world = World(tmp_path, template=template)
    with served(world, tmp_path) as api:
        job = api.client.submit(JobSpec("digits", ("python", "train.py"))).id
        world.store.jobs.set_phase(job, JobPhase.FINISHED, world.clock.now())
        api.client.submit(JobSpec("digits", ("python", "train.py")))
        ended = wait_for_end(api.client, job, NoTime())
    assert (ended.id, ended.phase) == (job, JobPhase.FINISHED)


class NoTime(VirtualClock):
    """Clock on which nothing waits."""

    def sleep(self, seconds: float) -> None:
        raise AssertionError("the job has ended")
