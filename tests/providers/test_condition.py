"""Status of a provider, as people read it."""

from __future__ import annotations

import pytest

from providers.base import Condition

CONTROLLER = "1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("owner", "way_out"),
    [
        (CONTROLLER, f"end them by hand, or run castor adopt {CONTROLLER}"),
        ("", "end them by hand, or run castor adopt ID"),
        ("castor-check", "end them by hand"),
    ],
)
def test_instances_of_another_controller_are_reported_with_a_way_out(
    owner: str, way_out: str
) -> None:
    (trouble,) = Condition(strangers={owner: 2}).stranger_troubles
    assert trouble.startswith("instances of another controller of this deployment, ")
    assert trouble.endswith(f": 2, which count in no limit: {way_out}")
