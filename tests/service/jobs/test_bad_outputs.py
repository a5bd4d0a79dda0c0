"""Choices of outputs that the API refuses, however they come in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.output import OutputSpec
from tests.service.agents import SPEC
from tests.service.conftest import Api


@pytest.mark.parametrize("pattern", ["../evil", "/etc/shadow", "", "a\nb", "x/../y"])
def test_patterns_that_leave_the_work_directory_are_refused(api: Api, pattern: str) -> None:
    with pytest.raises(SpecError, match="path inside the job's own tree"):
        api.client.submit(replace(SPEC, outputs=OutputSpec((pattern,))))


@pytest.mark.parametrize("limit", [0, -1, 10**30])
def test_limits_that_are_none_are_refused(api: Api, limit: int) -> None:
    with pytest.raises(SpecError, match=r"outputs\.limit"):
        api.client.submit(replace(SPEC, outputs=OutputSpec(maximum_bytes=limit)))
