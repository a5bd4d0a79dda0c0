"""Contract of a store for memories of programs."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.goodput import NoiseCurve
from autoscaler.domain.program import ProgramMemory
from autoscaler.store.store import Store
from tests.conformance.store_examples import BATCH, NOW, observation


def memory(program: str = "digits") -> ProgramMemory:
    return ProgramMemory(
        program=program,
        jobs=2,
        recent_jobs=(f"{program}-2", program),
        updated_seconds=NOW,
        initial_batch=64,
        parameter_bytes=4_000_000_000,
        bounds=BATCH,
        total_examples=1e9,
        observations=(observation(), observation(devices=2)),
        noise=NoiseCurve((1.0, 10.0), (500.0, 700.0)),
        start_seconds={"local-small": 12.5},
    )


class ProgramsConformance:
    def test_a_memory_comes_back_as_it_was(self, store: Store) -> None:
        store.programs.remember(memory())
        assert store.programs.recall("digits") == memory()
        assert store.programs.recall("another") is None

    def test_the_last_memory_of_a_program_counts(self, store: Store) -> None:
        store.programs.remember(memory("b"))
        store.programs.remember(memory("a"))
        store.programs.remember(replace(memory("b"), jobs=3))
        assert [(remembered.program, remembered.jobs) for remembered in store.programs.all()] == [
            ("a", 2),
            ("b", 3),
        ]

    def test_a_forgotten_memory_is_gone(self, store: Store) -> None:
        store.programs.remember(memory())
        assert store.programs.forget("digits")
        assert store.programs.recall("digits") is None
        assert not store.programs.forget("digits")
