from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.cli.ssh import shell_command
from autoscaler.domain.errors import NotFound
from autoscaler.domain.instance import InstancePhase
from autoscaler.wire.messages import InstanceView


def view(name: str, offer: str, cloud_id: str | None) -> InstanceView:
    usd = Decimal("0.5")
    return InstanceView(name, "a", offer, InstancePhase.TRAINING, 1, usd, 100.0, cloud_id=cloud_id)


INSTANCES = [
    view("a-0-1", "gpu/g5.xlarge/us-east-1a/spot", "i-0123"),
    view("a-0-2", "gpu/g5.xlarge/us-west-2-lax-1a/spot", "i-4567"),
    view("a-0-3", "gpu/g2-standard-4/us-central1-a/spot", "us-central1-a/castor-prod-1"),
    view("a-0-4", "local-small", "i-local"),
    view("a-0-5", "gpu/g5.xlarge/us-east-1a/spot", None),
]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("a-0-1", "aws ssm start-session --region us-east-1 --target i-0123"),
        ("a-0-2", "aws ssm start-session --region us-west-2 --target i-4567"),
        ("a-0-3", "gcloud compute ssh castor-prod-1 --zone us-central1-a --tunnel-through-iap"),
    ],
)
def test_a_shell_is_opened_by_the_tool_of_the_cloud(name: str, command: str) -> None:
    assert " ".join(shell_command(INSTANCES, name)) == command


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("a-0-9", 'no instance a-0-9 runs: did you mean "a-0-'),
        ("another", "no instance another runs: castor status JOB lists them"),
        ("a", 'no instance a runs: did you mean "a-0-1" or "a-0-2" or "a-0-3"'),
        ("a-0-4", r"a-0-4 \(local-small\) is on no cloud that has shells"),
        ("a-0-5", "a-0-5 is not launched yet"),
    ],
)
def test_what_has_no_shell_is_refused_by_name(name: str, cause: str) -> None:
    with pytest.raises(NotFound, match=cause):
        shell_command(INSTANCES, name)
