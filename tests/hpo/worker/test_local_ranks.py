"""The ranks of one instance, as threads."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from autoscaler.clock import SystemClock
from autoscaler.training.watch import present_watch
from hpo.driver.trial_server import TrialServer, begin_new_trial
from hpo.protocol import requests
from hpo.protocol.requests import TrialRequest, parse_request
from hpo.worker.local_ranks import FollowingRank, LeadingRank
from hpo.worker.objective_run import begin_trial, run_objective, send_end
from hpo.worker.rank import rank_socket_path, run_leading_rank
from hpo.worker.trial import RemoteTrial
from tests.hpo.lines import DirectChannel

Objective = Callable[[RemoteTrial], object]


class Counting(DirectChannel):
    """A line on which is noted what is said."""

    def __init__(self, server: TrialServer) -> None:
        super().__init__(server)
        self.said: list[str] = []

    def ask(self, text: str) -> str:
        self.said.append(parse_request(text).method)
        return super().ask(text)


class Instance:
    """A trial and the ranks that run it; `objectives` are the ranks', in their order."""

    def __init__(self, directory: Path, answer_timeout_seconds: float = 10.0) -> None:
        self.study = optuna.create_study(
            sampler=optuna.samplers.RandomSampler(seed=1),
            pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=2),
        )
        self.line = Counting(begin_new_trial(self.study))
        self.errors: dict[int, BaseException] = {}
        self._path = directory / "crew"
        self._answer_timeout_seconds = answer_timeout_seconds

    def run(self, *objectives: Objective) -> optuna.trial.FrozenTrial:
        leading = LeadingRank(self.line, self._path, len(objectives))
        ranks = [leading] + [
            FollowingRank(self._path, rank, SystemClock(), self._answer_timeout_seconds)
            for rank in range(1, len(objectives))
        ]
        threads = [
            threading.Thread(target=self._be, args=(rank, line, objective))
            for rank, (line, objective) in enumerate(zip(ranks, objectives, strict=True))
        ]
        for thread in threads:
            thread.start()
        threads[0].join(60.0)
        leading.close()
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive(), "a rank hangs"
        return self.study.trials[0]

    def _be(self, rank: int, line: LeadingRank | FollowingRank, objective: Objective) -> None:
        try:
            trial = begin_trial(line, is_shared=True)
            assert trial is not None
            end = run_objective(objective, trial)
            if isinstance(line, FollowingRank) and end["state"] == "FAIL":
                line.limit_answer_timeout(0.3)
            send_end(line, end)
        except BaseException as error:
            self.errors[rank] = error


def test_all_ranks_hear_the_same_and_the_driver_hears_one(tmp_path: Path) -> None:
    instance, seen = Instance(tmp_path), []

    def objective(trial: RemoteTrial) -> float:
        rate = trial.suggest_float("rate", 0.0, 1.0)
        seen.append(rate)
        for step in range(3):
            trial.report(rate - step, step)
            assert not trial.should_prune()
        trial.set_user_attr("seen", 1)
        return rate

    trial = instance.run(objective, objective, objective)
    assert instance.errors == {}
    assert seen == [trial.params["rate"]] * 3
    assert trial.values == [seen[0]]
    report, asked = requests.REPORT, requests.SHOULD_PRUNE
    told = [
        requests.BEGIN,
        requests.SUGGEST,
        *([report, asked] * 3),
        requests.SET_USER_ATTR,
        requests.END,
    ]
    assert instance.line.said == told


def suggests_alone(trial: RemoteTrial) -> float:
    trial.suggest_float("extra", 0.0, 1.0)
    return silent(trial)


def silent(trial: RemoteTrial) -> float:
    trial.report(1.0, 1)
    trial.should_prune()
    return 1.0


def reports_another_step(trial: RemoteTrial) -> float:
    trial.report(1.0, 2)
    trial.should_prune()
    return 1.0


@pytest.mark.parametrize(
    ("leading", "following", "message"),
    [
        (
            silent,
            suggests_alone,
            "rank 1 is to suggest 'extra' where rank 0 is to ask should_prune after a report of "
            "step 1: every rank",
        ),
        (suggests_alone, silent, "rank 1 is to ask should_prune .* where rank 0 is to suggest"),
        (silent, reports_another_step, "report of step 2 where rank 0 .* report of step 1"),
    ],
)
def test_a_rank_that_is_out_of_step_ends_the_trial_with_a_clear_word(
    tmp_path: Path, leading: Objective, following: Objective, message: str
) -> None:
    instance = Instance(tmp_path)
    trial = instance.run(leading, following)
    assert trial.state is optuna.trial.TrialState.FAIL
    assert re.search(message, trial.user_attrs["castor:cause"])


def test_a_rank_does_not_wait_for_ever(tmp_path: Path) -> None:
    instance = Instance(tmp_path, answer_timeout_seconds=0.2)
    over = threading.Event()

    def busy(trial: RemoteTrial) -> float:
        over.wait(60.0)
        return 1.0

    def asking(trial: RemoteTrial) -> float:
        try:
            return trial.suggest_float("rate", 0.0, 1.0)
        finally:
            over.set()

    trial = instance.run(busy, asking)
    assert trial.values == [1.0], "the other rank's error is its own"
    assert 1 in instance.errors


def test_whoever_is_left_alone_says_so(tmp_path: Path) -> None:
    line = Counting(begin_new_trial(optuna.create_study()))
    leading = LeadingRank(line, tmp_path / "crew", 2)
    following = FollowingRank(tmp_path / "crew", 1, SystemClock())
    leading.ask(TrialRequest(requests.BEGIN, {}).text())
    following.ask(TrialRequest(requests.BEGIN, {}).text())
    following._connection.shutdown(socket.SHUT_RD)
    with pytest.raises(RuntimeError, match="rank 1 can't continue: rank 0 has ended"):
        following.ask(TrialRequest(requests.SHOULD_PRUNE, {"step": 1}).text())


class Session:
    def __init__(self, has_last_word: bool) -> None:
        self.has_last_word = has_last_word


@pytest.mark.parametrize("has_last_word", [False, True, None])
def test_an_error_ends_the_trial_where_no_other_instance_decides(
    tmp_path: Path, has_last_word: bool | None
) -> None:
    def objective(trial: RemoteTrial) -> float:
        watch = present_watch()
        assert watch is not None
        if has_last_word is not None:
            watch.see(Session(has_last_word))
        raise MemoryError("on this instance")

    instance = Instance(tmp_path)
    leading = LeadingRank(instance.line, tmp_path / "crew", 2)
    other = FollowingRank(tmp_path / "crew", 1, SystemClock())

    def follow() -> None:
        trial = begin_trial(other, is_shared=True)
        assert trial is not None
        send_end(other, requests.failure_request("on this one too").arguments)

    thread = threading.Thread(target=follow)
    thread.start()
    assert run_leading_rank(objective, leading) is (has_last_word is not False)
    leading.close()
    thread.join(60.0)
    assert not thread.is_alive()
    (trial,) = instance.study.trials
    assert trial.state.is_finished() is (has_last_word is not False)


def test_instances_that_share_a_directory_do_not_meet(tmp_path: Path) -> None:
    """A rank that came to another instance's leader was told that it is out of step."""

    def meet(port: str, ranks: int) -> LeadingRank:
        run = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": port}
        return LeadingRank(
            Counting(begin_new_trial(study)), rank_socket_path(tmp_path, run), ranks
        )

    study = optuna.create_study()
    meet("1", ranks=1)
    assert not list(tmp_path.iterdir()), "who is alone waits for nobody"
    meet("2", ranks=2)
    meet("3", ranks=2)
    assert len(list(tmp_path.iterdir())) == 2
