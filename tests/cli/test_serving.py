from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.main import ServeSettings, serve


@pytest.mark.parametrize("policy", ["fifo", "nobody"])
def test_a_policy_that_buys_nothing_does_not_serve(tmp_path: Path, policy: str) -> None:
    state = tmp_path / "state"
    with pytest.raises(SpecError, match=f"policy: .*{policy}"):
        serve(ServeSettings(state, port=0, policy=policy))
    assert not (state / "castor.db").exists()
