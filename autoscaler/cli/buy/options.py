"""Options of `castor buy`. The command imports `run` when called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Json

Pools = Annotated[
    str,
    Argument(help="Pools in a cloud, as for castor serve --pools: a file or ssm:/NAME."),
]
Type = Annotated[str, Option("--type", help="Instance type, such as p5.48xlarge.")]
Instances = Annotated[int, Option(help="Number of instances.", min=1)]
Days = Annotated[int, Option(help="Length of the block: 1 to 14 days, or whole weeks.", min=1)]
First = Annotated[
    str | None,
    Option("--from", help="Earliest begin, such as 24h from now or 2026-12-01T08:00Z."),
]
Last = Annotated[str | None, Option("--to", help="Latest end, written as --from.")]
OfferingId = Annotated[
    str | None,
    Option("--offering", metavar="ID", help="Buy this one. Asks for its price first."),
]
Yes = Annotated[
    str | None,
    Option(
        metavar="USD",
        help="With --offering: do not ask. The amount must be the price, such as 4718.59.",
    ),
]


def buy(
    pools: Pools,
    instance_type: Type,
    instances: Instances = 1,
    days: Days = 1,
    first: First = None,
    last: Last = None,
    offering: OfferingId = None,
    yes: Yes = None,
    as_json: Json = False,
) -> None:
    """List capacity blocks beside prices of pools, and buy one.

    A block is GPU instances for a fixed time, paid for in advance. It can't be cancelled or
    refunded. The calls use your own credentials, which need ec2:DescribeCapacityBlockOfferings,
    and to buy also ec2:PurchaseCapacityBlock and ec2:CreateTags (docs/aws.md).
    """
    from typer import prompt

    from autoscaler.cli.buy import run
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError

    if yes is not None and offering is None:
        raise SpecError("is an answer to --offering: name what to buy", "--yes")
    clock = SystemClock()
    search = run.parse_search(instance_type, instances, days, first, last, clock.now())
    listing = run.search_blocks(pools, search, clock)
    if offering is None:
        run.print_listing(listing, as_json)
        return
    chosen = listing.chosen(offering)
    amount = yes or prompt(run.question(chosen), err=True)
    run.buy_block(listing, chosen, amount, as_json)
