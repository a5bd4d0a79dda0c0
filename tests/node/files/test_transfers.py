"""One count of an instance's transfers, through deaths of its processes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clock import VirtualClock
from autoscaler.domain.transfer import MOST_BYTES, MeterReading, Transfer, TransferCount
from autoscaler.node.files.transfers import Transfers
from autoscaler.objects import Meter


class Agent:
    """One life of an agent after the other, on one disk."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock(1000.0)
        self.path = directory / "transfers.json"
        self.start()

    def start(self, job: str = "job") -> None:
        self.clock.advance(1.0)
        self.own = Meter()
        self.transfers = Transfers(self.path, self.own, self.clock, job)

    def told(self, job: str = "job") -> Transfer:
        return self.transfers.count(job).transfer


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_its_own_and_what_processes_tell_is_one_count(agent: Agent) -> None:
    agent.own.add(Transfer(fetched_bytes=1))
    for meter, sent_bytes in (("first", 10), ("second", 100), ("first", 30), ("first", 20)):
        agent.transfers.hear(MeterReading(meter, Transfer(sent_bytes)))
    assert agent.told() == Transfer(130, 1)
    assert agent.transfers.count("job").begun_seconds == 1001.0


def test_a_later_agent_goes_on_and_hears_nothing_twice(agent: Agent) -> None:
    agent.own.add(Transfer(5))
    agent.transfers.hear(MeterReading("script", Transfer(10)))
    before = agent.transfers.count("job")
    agent.start()
    assert agent.transfers.count("job") == before
    agent.transfers.hear(MeterReading("script", Transfer(12)))
    agent.own.add(Transfer(1))
    assert agent.transfers.count("job") == replace(before, transfer=Transfer(18))


def test_one_without_its_file_counts_anew(agent: Agent) -> None:
    agent.own.add(Transfer(5))
    first = agent.transfers.count("job")
    agent.path.write_text("{")
    agent.start()
    second = agent.transfers.count("job")
    assert second.transfer == Transfer() and second.begun_seconds > first.begun_seconds


def test_a_disk_that_is_full_keeps_nothing_from_being_told(agent: Agent) -> None:
    agent.path.with_name("transfers.json.unfinished").mkdir()
    agent.own.add(Transfer(5))
    assert agent.told() == Transfer(5)
    agent.path.with_name("transfers.json.unfinished").rmdir()
    agent.told()
    assert agent.path.exists()


def test_what_is_said_of_a_job_stays_as_it_was_when_that_was_left(agent: Agent) -> None:
    agent.own.add(Transfer(5))
    agent.transfers.begin("job")
    agent.transfers.begin("next")
    agent.own.add(Transfer(2))
    assert (agent.told("job"), agent.told("next")) == (Transfer(5), Transfer(7))
    agent.transfers.begin("job")
    agent.own.add(Transfer(1))
    assert (agent.told("job"), agent.told("next")) == (Transfer(8), Transfer(7))


def test_a_thousand_starts_take_no_more_room_than_a_few(agent: Agent) -> None:
    for number in range(1000):
        for sent_bytes in (1, 2):
            agent.transfers.hear(MeterReading(f"script {number}", Transfer(sent_bytes)))
    assert agent.told() == Transfer(2000)
    assert agent.path.stat().st_size < 10_000


def test_a_job_that_tells_nonsense_silences_nobody(agent: Agent) -> None:
    for number in range(3):
        agent.transfers.hear(MeterReading(str(number), Transfer(MOST_BYTES)))
    assert agent.told() == Transfer(MOST_BYTES)


HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("own"), st.integers(0, 9)),
        st.tuples(st.sampled_from(("first", "second")), st.integers(0, 9)),
        st.tuples(st.just("tell"), st.just(0)),
        st.tuples(st.just("dies"), st.just(0)),
    ),
    max_size=40,
)


@given(happenings=HAPPENINGS)
def test_what_is_told_never_falls_and_lacks_only_what_a_death_kept_from_being_told(
    happenings: list[tuple[str, int]],
) -> None:
    """Processes of the job outlive their agents, and tell each all that they have counted."""
    with tempfile.TemporaryDirectory() as directory:
        agent, scripts = Agent(Path(directory)), dict.fromkeys(("first", "second"), 0)
        told: list[TransferCount] = []
        own = lost = told_of_own = 0
        for what, sent_bytes in happenings:
            if what == "own":
                own += sent_bytes
                agent.own.add(Transfer(sent_bytes))
            elif what in scripts:
                scripts[what] += sent_bytes
                agent.transfers.hear(MeterReading(what, Transfer(scripts[what])))
            elif what == "dies":
                lost, own = lost + own - told_of_own, told_of_own
                agent.start()
                for name, count in scripts.items():
                    agent.transfers.hear(MeterReading(name, Transfer(count)))
            else:
                told.append(agent.transfers.count("job"))
                told_of_own = own
                assert told[-1].transfer.sent_bytes == own + sum(scripts.values())
        assert len({count.begun_seconds for count in told}) <= 1
        amounts = [count.transfer.sent_bytes for count in told]
        assert amounts == sorted(amounts)
