"""Ranks of one instance: which group carries what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from autoscaler.training.collectives.instance import join_instance

CPU = torch.device("cpu")


@pytest.fixture
def script_group(request: pytest.FixtureRequest) -> Iterator[None]:
    dist.init_process_group(request.param, store=HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("script_group", ["cuda:gloo"], indirect=True)
@pytest.mark.usefixtures("script_group")
def test_a_group_that_takes_no_cpu_tensors_gets_one_for_control_beside_it() -> None:
    made = dist.group.WORLD
    instance = join_instance(CPU, under_castor=False)
    assert instance._control is not made
    dist.all_reduce(torch.ones(1), group=instance._control)
    instance.close()
    assert dist.is_initialized(), "the script's group is the script's to end"


@pytest.mark.parametrize("script_group", ["gloo"], indirect=True)
@pytest.mark.usefixtures("script_group")
def test_a_group_that_takes_cpu_tensors_is_used_as_it_is() -> None:
    instance = join_instance(CPU, under_castor=False)
    assert instance._control is dist.group.WORLD
    instance.close()
    assert dist.is_initialized()


def test_alone_everything_is_there_already() -> None:
    instance = join_instance(CPU, under_castor=False)
    assert (instance.sum([1.0]), instance.from_leader([2.0])) == ([1.0], [2.0])
    assert (instance.values("a"), instance.value_from_leader("b")) == (["a"], "b")
    instance.barrier()
    instance.close()
