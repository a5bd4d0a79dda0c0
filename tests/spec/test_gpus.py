from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.job import GpuKind, InstanceBounds
from autoscaler.domain.offer import Offer
from autoscaler.spec.gpus import parse_gpus
from autoscaler.spec.job_file import load_job
from tests.controller.cloud import offer

GIGABYTE = 10**9


def offer_with(kind: str, devices: int) -> Offer:
    return replace(offer(f"{kind}x{devices}", devices), device_kind=kind)


@pytest.mark.parametrize(
    ("texts", "gigabytes", "expected"),
    [
        (["H100:8"], 0, ["h100:8"]),
        (["a100"], 0, ["a100-40", "a100-80"]),
        (["A100-80GB:4"], 0, ["a100-80:4"]),
        (["A100", "H100"], 80, ["a100-80", "h100"]),
        (["V100"], 0, ["v100", "v100-32"]),
        ([], 141, ["b200", "b300", "h200"]),
    ],
)
def test_names_and_memory_choose_kinds(
    texts: list[str], gigabytes: int, expected: list[str]
) -> None:
    assert [str(gpu) for gpu in parse_gpus(texts, gigabytes * GIGABYTE)] == expected


@pytest.mark.parametrize("text", ["", "h100:", "h100:0", "h100:8:8", "h 100", "h100:99999"])
def test_what_is_no_name_with_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write NAME or NAME:NUMBER, such as H100:8"):
        parse_gpus([text])


def test_a_job_uses_offers_with_its_gpus_only() -> None:
    text = "name: a\ncommand: python a.py\ninstances: {max: 4, gpu: ['H100:8', A100]}\n"
    bounds = load_job(text, 0.0).spec.instances
    offers = [offer_with("h100", 8), offer_with("h100", 1), offer_with("a100-40", 8)]
    offers += [offer_with("l4", 1), offer_with("cpu-core", 1)]
    permitted = [offer.id for offer in offers if bounds.permits(offer)]
    assert permitted == ["h100x8", "a100-40x8"]
    named = InstanceBounds(offers=("l4x1",), gpus=(GpuKind("l4"), GpuKind("h100")))
    assert [offer.id for offer in offers if named.permits(offer)] == ["l4x1"]
