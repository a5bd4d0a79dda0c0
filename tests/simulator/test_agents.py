from __future__ import annotations

from autoscaler.simulator.agents import crowded


def test_only_distributed_jobs_that_meet_on_a_machine_are_in_each_others_way() -> None:
    assert crowded({"a": ["0", "1"], "b": ["1", "2"], "c": ["3", "4"]}) == {"a", "b"}
    assert crowded({"a": ["0", "1"], "small": ["1"]}) == frozenset()
    assert crowded({"a": ["0", "0"], "b": ["0", "1"]}) == frozenset()
    assert crowded({}) == frozenset()
