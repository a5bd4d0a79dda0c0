"""Checks of pools in clouds: credentials, offers, prices, quotas, and a launch if it is wanted."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.text import Text

from autoscaler.cli.check.findings import CheckResult, Finding
from autoscaler.cli.check.trial_launch import CONTROLLER, offer_to_try, try_launch
from autoscaler.cli.live import print_whole
from autoscaler.cli.logging_setup import leave_providers_unlogged
from autoscaler.cli.output import print_json
from autoscaler.cli.tables import utc_minute, words_table
from autoscaler.clock import Clock
from autoscaler.clouds import open_providers, open_storage, second_source
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from providers.base import Provider
from providers.plugin import ControllerContext

_STALE_PRICE_SECONDS = 14 * 86_400.0
_MOST_NAMED = 5
# Leaves room at 80 columns for the id of an offer.
_CHECK_COLUMNS = 26
_UNITS = {
    LimitUnit.DEVICES: "at most {:g} devices",
    LimitUnit.INSTANCES: "at most {:g} instances",
    LimitUnit.USD_PER_HOUR: "at most ${:g} an hour",
}


_STYLES = {
    CheckResult.OK: "green",
    CheckResult.UNPROVEN: "cyan",
    CheckResult.WARNING: "yellow",
    CheckResult.FAILED: "red",
}


def check_sources(
    sources: Sequence[str],
    host: str,
    clock: Clock,
    consents: Callable[[Offer], bool] | None = None,
) -> list[Finding]:
    """Return the findings on all sources of pools, in the order of the checks.

    `consents` returns whether one instance of an offer may be launched and ended; None: it is not
    wanted.
    """
    leave_providers_unlogged()
    findings: list[Finding] = []
    clouds: set[str] = set()
    for source in sources:
        with tempfile.TemporaryDirectory(prefix="castor-check-") as state:
            context = ControllerContext(Path(state), host, CONTROLLER, clock)
            findings += _check_source(source, clouds, context, consents)
    return findings


def _check_source(
    source: str,
    clouds: set[str],
    context: ControllerContext,
    consents: Callable[[Offer], bool] | None,
) -> Iterator[Finding]:
    """Yield the findings on one source, and add its cloud to `clouds`, those checked before."""
    try:
        providers = open_providers(None, [source], context)
        for cloud in providers.keys() & clouds:
            raise second_source(source, cloud)
        clouds.update(providers)
        storage = open_storage([source], context)
    except CastorError as error:
        text = error.message if isinstance(error, SpecError) else str(error)
        yield Finding(source, CheckResult.FAILED, text)
        return
    place = "on the controller" if storage is None else f"in {storage.jobs.place}"
    yield Finding(source, CheckResult.OK, f"the pools can be read; jobs' files are {place}")
    for name, provider in providers.items():
        findings = list(check_provider(name, provider, context.clock.now()))
        yield from findings
        has_failed = any(finding.verdict is CheckResult.FAILED for finding in findings)
        if consents is not None and not has_failed:
            yield from _check_account(provider, context.clock, consents)


def _check_account(
    provider: Provider, clock: Clock, consents: Callable[[Offer], bool]
) -> Iterator[Finding]:
    """Launch and end one instance if the user consents."""
    offer = offer_to_try(provider.offers())
    if offer is not None and consents(offer):
        yield from try_launch(provider, offer, clock)


def check_provider(name: str, provider: Provider, now_seconds: float) -> Iterator[Finding]:
    """Yield the findings on one provider: lists, offers by pool, prices and quotas."""
    try:
        provider.instances()
        offers = provider.offers()
        limits = provider.limits()
    except CastorError as error:
        yield Finding(name, CheckResult.FAILED, str(error))
        return
    yield Finding(name, CheckResult.OK, "instances, offers and limits can be listed")
    condition = provider.condition()
    for trouble in (*condition.silent_troubles, *condition.troubles, *condition.notes):
        yield Finding(name, CheckResult.WARNING, trouble)
    for owner, count in sorted(condition.strangers.items()):
        text = f"{count} instances have the controller {owner or 'unnamed'}: right while it runs"
        yield Finding(name, CheckResult.OK, text)
    yield from _check_pools(offers, condition.left_out, condition.begins)
    yield from _check_prices(offers, now_seconds)
    yield from _check_limits(offers, limits)
    yield from _check_launches(provider, offers)
    yield from _check_spot(provider, offers)


def _check_pools(
    offers: Sequence[Offer], left_out: Mapping[str, str], begins: Mapping[str, float]
) -> Iterator[Finding]:
    """Yield what each pool offers, and why the rest of it is left out.

    `begins` maps the ids of offers that are in order to the times when they begin.
    """
    ids = (*left_out, *(offer.id for offer in offers))
    for pool in sorted({_pool_of(offer_id) for offer_id in ids}):
        sold = [offer for offer in offers if _pool_of(offer.id) == pool]
        missing = {key: why for key, why in left_out.items() if _pool_of(key) == pool}
        if sold:
            cheapest = min(sold, key=lambda offer: offer.usd_per_hour)
            yield Finding(
                f"pool {pool}",
                CheckResult.WARNING if missing else CheckResult.OK,
                f"{len(sold)} of {len(sold) + len(missing)} offers can be bought, from "
                f"${cheapest.usd_per_hour:.4g}/h ({cheapest.id}){_named(missing)}",
            )
        elif missing.keys() <= begins.keys():
            first = utc_minute(min(begins[key] for key in missing))
            text = f"in order, but nothing can be launched before {first} UTC"
            yield Finding(f"pool {pool}", CheckResult.OK, f"{text}{_named(missing)}")
        else:
            yield Finding(
                f"pool {pool}", CheckResult.FAILED, f"nothing can be bought{_named(missing)}"
            )


def _check_prices(offers: Sequence[Offer], now_seconds: float) -> Iterator[Finding]:
    """Yield the sources of prices, and the offers whose price is old."""
    stale = [
        offer.id
        for offer in offers
        if offer.priced_seconds is not None
        and now_seconds - offer.priced_seconds > _STALE_PRICE_SECONDS
    ]
    sources = ", ".join(sorted({offer.price_source for offer in offers})) or "none"
    if stale:
        text = f"{len(stale)} prices are older than 14 days ({sources}): allow reading live prices"
        yield Finding("prices", CheckResult.WARNING, text)
    elif offers:
        yield Finding("prices", CheckResult.OK, f"from {sources}")


def _check_limits(offers: Sequence[Offer], limits: Sequence[Limit]) -> Iterator[Finding]:
    """Yield each quota and cap, and the offers of which it permits no instance."""
    for limit in limits:
        counted = [offer for offer in offers if limit.use(offer) > 0]
        shut = [offer.id for offer in counted if limit.use(offer) > limit.maximum]
        bound = _UNITS[limit.unit].format(limit.maximum)
        if not counted:
            continue
        if len(shut) == len(counted):
            text = f"{bound}: no instance fits: ask the cloud for more, or correct the pools"
            yield Finding(limit.name, CheckResult.FAILED, text)
        elif shut:
            text = f"{bound}: no instance of {', '.join(shut[:_MOST_NAMED])} fits"
            yield Finding(limit.name, CheckResult.WARNING, text)
        else:
            yield Finding(limit.name, CheckResult.OK, bound)


def _check_launches(provider: Provider, offers: Sequence[Offer]) -> Iterator[Finding]:
    """Yield whether the cloud would permit a launch from each pool, by each purchase."""
    cheapest: dict[tuple[str, Purchase], Offer] = {}
    for offer in sorted(offers, key=lambda offer: offer.usd_per_hour, reverse=True):
        cheapest[_pool_of(offer.id), offer.purchase] = offer
    for (pool, purchase), offer in sorted(cheapest.items()):
        subject = f"launch of {pool}, {purchase}"
        try:
            is_permitted = provider.rehearse(offer.id)
        except CastorError as error:
            yield Finding(subject, CheckResult.FAILED, str(error))
            continue
        if is_permitted:
            text = f"a dry run of {offer.id} is permitted with these credentials"
            yield Finding(subject, CheckResult.OK, text)
        else:
            text = "the cloud has no dry run: the first launch proves the permission"
            yield Finding(subject, CheckResult.UNPROVEN, text)


def _check_spot(provider: Provider, offers: Sequence[Offer]) -> Iterator[Finding]:
    """Yield how likely each pool's spot instances can be had, where the cloud can tell."""
    for pool in sorted(
        {_pool_of(offer.id) for offer in offers if offer.purchase is Purchase.SPOT}
    ):
        subject = f"spot capacity of {pool}"
        try:
            scores = provider.spot_scores(pool)
        except CastorError as error:
            yield Finding(subject, CheckResult.UNPROVEN, f"no scores: {error}")
            continue
        if scores is not None:
            by_zone = ", ".join(f"{zone} {score}" for zone, score in scores.by_zone.items())
            text = (
                f"scores of a launch of {scores.instances} in one zone now, 1 (not likely to "
                f"succeed) to 10 (highly likely), without guarantee: {by_zone or 'none'}"
            )
            caveat = f"; {scores.caveat}" if scores.caveat else ""
            yield Finding(subject, CheckResult.UNPROVEN, text + caveat)


def print_findings(findings: Sequence[Finding], as_json: bool) -> None:
    """Print the findings as a table, or as JSON."""
    if as_json:
        print_json(list[Finding], list(findings))
        return
    table = words_table("check", "result", "finding", wraps=("check", "finding"))
    table.columns[0].max_width = _CHECK_COLUMNS
    for finding in findings:
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        table.add_row(finding.subject, verdict, finding.text)
    print_whole(table)


def _pool_of(offer_id: str) -> str:
    return offer_id.partition("/")[0]


def _named(left_out: Mapping[str, str]) -> str:
    """Return the reasons why offers are left out, each once, as the end of a sentence."""
    reasons: dict[str, list[str]] = {}
    for offer_id, reason in sorted(left_out.items()):
        reasons.setdefault(reason, []).append(offer_id)
    parts = [
        f"{reason} ({len(ids)} offers)" if len(ids) > 1 else reason
        for reason, ids in list(reasons.items())[:_MOST_NAMED]
    ]
    return f"; left out: {'; '.join(parts)}" if parts else ""
