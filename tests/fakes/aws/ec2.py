"""Answers of the proxy for EC2 and the price lists, and its changes of moto's answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from xml.etree import ElementTree

import botocore.session

from tests.fakes.aws.account import Account, Parameters
from tests.fakes.aws.reservations import FakeReservation

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


def form_values(parameters: Parameters, prefix: str) -> list[str]:
    """Return the values of a list in a form: ``PREFIX.1``, ``PREFIX.2``, ..."""
    return [
        value
        for key, value in parameters.items()
        if re.fullmatch(rf"{re.escape(prefix)}\.\d+", key)
    ]


def filter_values(parameters: Parameters, name: str) -> list[str]:
    """Return the values of one filter in a form."""
    for key, value in parameters.items():
        if re.fullmatch(r"Filter\.\d+\.Name", key) and value == name:
            return form_values(parameters, f"{key.removesuffix('.Name')}.Value")
    return []


@cache
def fleet_tag_kinds() -> frozenset[str]:
    """Return the resource types that an instant fleet may tag, by the model's documentation.

    The enum of the model has all types of EC2, so botocore's own check accepts any of them.
    """
    model = botocore.session.get_session().get_service_model("ec2")
    text = model.operation_model("CreateFleet").input_shape.members["TagSpecifications"]
    (sentence,) = re.findall(r"<code>instant</code>, (.*?)</p>", text.documentation)
    kinds = frozenset(re.findall(r"<code>([a-z-]+)</code>", sentence))
    assert {"fleet", "instance", "volume"} <= kinds, f"the model's text has changed: {sentence}"
    return kinds


def untaggable_kinds(parameters: Parameters) -> list[str]:
    """Return the resource types of a CreateFleet that an instant fleet can't tag."""
    named = {
        value
        for key, value in parameters.items()
        if re.fullmatch(r"TagSpecifications?\.\d+\.ResourceType", key)
    }
    return sorted(named - fleet_tag_kinds())


def fleet_without_instances(errors: str) -> bytes:
    """Return the reply, with status 200, of a fleet without instances."""
    return _reply(
        "CreateFleet",
        f"<fleetId>fleet-0</fleetId><fleetInstanceSet/><errorSet>{errors}</errorSet>",
    )


def empty(action: str) -> bytes:
    """Return a reply without content."""
    return _reply(action, "")


def spot_history(account: Account, parameters: Parameters) -> bytes:
    """Return the account's spot prices; moto has one price only."""
    kinds = form_values(parameters, "InstanceType")
    zones = filter_values(parameters, "availability-zone")
    items = "".join(
        f"<item><instanceType>{kind}</instanceType><spotPrice>{usd}</spotPrice>"
        f"<availabilityZone>{zone}</availabilityZone>"
        f"<productDescription>Linux/UNIX</productDescription>"
        f"<timestamp>{_moment(account.clock.now() - 3600)}</timestamp></item>"
        for (kind, zone), usd in account.spot_prices.items()
        if (not kinds or kind in kinds) and (not zones or zone in zones)
    )
    return _reply(
        "DescribeSpotPriceHistory", f"<spotPriceHistorySet>{items}</spotPriceHistorySet>"
    )


def invalid_scores(parameters: Parameters) -> str:
    """Return what botocore's model of GetSpotPlacementScores forbids in a call; empty if nothing.

    The model's client checks the least values only.
    """
    if not form_values(parameters, "InstanceType"):
        return "Specify InstanceTypes or InstanceRequirementsWithMetadata."
    for name, number, most in (
        ("TargetCapacity", int(parameters["TargetCapacity"]), 2_000_000_000),
        ("MaxResults", int(parameters.get("MaxResults", "10")), 1000),
        ("InstanceTypes", len(form_values(parameters, "InstanceType")), 1000),
        ("RegionNames", len(form_values(parameters, "RegionName")), 10),
    ):
        if number > most:
            return f"{name} is greater than {most}."
    return ""


def spot_scores(account: Account, parameters: Parameters) -> bytes:
    """Return scores of the ten best zones; fewer than three types score low (botocore's model)."""
    assert parameters["SingleAvailabilityZone"] == "true", "the fake scores zones, not regions"
    is_low = len(set(form_values(parameters, "InstanceType"))) < 3
    top = sorted(account.spot_scores.items(), key=lambda item: -item[1])[:10]
    items = "".join(
        f"<item><region>{parameters['RegionName.1']}</region>"
        f"<availabilityZoneId>{zone}</availabilityZoneId>"
        f"<score>{1 if is_low else score}</score></item>"
        for zone, score in top
    )
    inner = f"<spotPlacementScoreSet>{items}</spotPlacementScoreSet>"
    return _reply("GetSpotPlacementScores", inner)


def offerings(account: Account, parameters: Parameters) -> bytes:
    """Return the zones of types; moto lacks p3, and is slow."""
    items = "".join(
        f"<item><instanceType>{kind}</instanceType><locationType>availability-zone</locationType>"
        f"<location>{zone}</location></item>"
        for kind in filter_values(parameters, "instance-type")
        if kind in account.list_prices
        for zone in account.zones
    )
    inner = f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>"
    return _reply("DescribeInstanceTypeOfferings", inner)


def reservations(account: Account) -> bytes:
    """Return all reservations of the account."""
    ended, now_seconds = account.ended_seconds, account.clock.now()
    items = "".join(
        f"<item>{reservation.described(account.number, ended, now_seconds)}</item>"
        for reservation in account.reservations.values()
    )
    inner = f"<capacityReservationSet>{items}</capacityReservationSet>"
    return _reply("DescribeCapacityReservations", inner)


def blocks(account: Account, parameters: Parameters) -> bytes:
    """Return the blocks for sale that match a call."""
    items = "".join(
        f"<item>{block.described()}</item>"
        for block in account.blocks.values()
        if block.fits(parameters)
    )
    inner = f"<capacityBlockOfferingSet>{items}</capacityBlockOfferingSet>"
    return _reply("DescribeCapacityBlockOfferings", inner)


def buy_block(account: Account, parameters: Parameters) -> bytes:
    """Create the reservation of a bought block; it starts with the block."""
    block = account.blocks.pop(parameters["CapacityBlockOfferingId"])
    name = f"cr-{len(account.reservations):017x}"
    tag_keys = [
        key for key in parameters if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)
    ]
    tags = {parameters[key]: parameters[f"{key.removesuffix('.Key')}.Value"] for key in tag_keys}
    reservation = account.reservations[name] = FakeReservation(
        name,
        block.kind,
        block.zone,
        block.total,
        is_block=True,
        start_seconds=block.start_seconds,
        end_seconds=block.end_seconds,
        tags=tags,
    )
    item = reservation.described(account.number, (), account.clock.now())
    inner = f"<capacityReservation>{item}</capacityReservation>"
    return _reply("PurchaseCapacityBlock", inner)


def apply_account_state(account: Account, body: bytes) -> bytes:
    """Return a list of instances as EC2 shows it at the account's present time."""
    tree = ElementTree.fromstring(body)
    reservations = tree.find(_name("reservationSet"))
    for reservation in list(reservations if reservations is not None else ()):
        instances = reservation.find(_name("instancesSet"))
        assert instances is not None and reservations is not None
        for instance in list(instances):
            instance_id = instance.findtext(_name("instanceId")) or ""
            if account.is_hidden(instance_id):
                instances.remove(instance)
            else:
                _date(account, instance_id, instance)
                for reservation_id, reserved in account.reservations.items():
                    if instance_id in reserved.instances:
                        _set(instance, "capacityReservationId", reservation_id)
        if len(instances) == 0:
            reservations.remove(reservation)
    return ElementTree.tostring(tree)


def _date(account: Account, instance_id: str, instance: ElementTree.Element) -> None:
    launched_seconds = account.launched_seconds.get(instance_id)
    if launched_seconds is not None:
        _set(instance, "launchTime", _moment(launched_seconds))
    ended_seconds = account.ended_seconds.get(instance_id)
    state = instance.find(_name("instanceState"))
    assert state is not None
    if ended_seconds is not None:
        when = datetime.fromtimestamp(ended_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
        is_ours = instance_id not in account.reclaimed
        reason = f"User initiated ({when} GMT)" if is_ours else "Server.SpotInstanceTermination"
        _set(instance, "reason", reason)
    elif account.is_pending(instance_id):
        _set(state, "code", "0")
        _set(state, "name", "pending")


def _set(parent: ElementTree.Element, tag: str, text: str) -> None:
    element = parent.find(_name(tag))
    if element is None:
        element = ElementTree.SubElement(parent, tag)
    element.text = text


def instance_ids(body: bytes) -> tuple[str, ...]:
    """Return the instance ids in a fleet's reply."""
    tree = ElementTree.fromstring(body)
    items = tree.findall(f".//{_name('instanceIds')}/{_name('item')}")
    return tuple(item.text or "" for item in items)


def quotas(account: Account, parameters: Mapping[str, object]) -> bytes:
    """Return a page of ListServiceQuotas."""
    entries = [
        {"ServiceCode": "ec2", "QuotaName": name, "QuotaCode": code, "Value": value}
        for (name, code), value in account.quotas.items()
    ]
    return _page(account, parameters, "Quotas", entries)


def products(account: Account, parameters: Mapping[str, object]) -> bytes:
    """Return a page of GetProducts."""
    filters = parameters.get("Filters")
    assert isinstance(filters, list)
    values = {condition["Field"]: condition["Value"] for condition in filters}
    kind = values["instanceType"]
    is_listed = kind in account.list_prices and values["regionCode"] in account.priced_regions
    prices = [*account.other_prices.get(kind, ()), account.list_prices[kind]] if is_listed else []
    return _page(account, parameters, "PriceList", [_product(usd) for usd in prices])


def _product(usd: str) -> str:
    price = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    term = {"priceDimensions": {"sku.term.rate": price}}
    return json.dumps({"product": {}, "terms": {"OnDemand": {"sku.term": term}}})


def _page(
    account: Account, parameters: Mapping[str, object], field: str, entries: Sequence[object]
) -> bytes:
    """Return the page that the token in the parameters names."""
    start = int(str(parameters.get("NextToken", 0)))
    end = start + (account.page or len(entries))
    token = start if account.repeats_token else end
    following = {"NextToken": str(token)} if end < len(entries) else {}
    return json.dumps({field: entries[start:end], **following}).encode()


def _reply(action: str, inner: str) -> bytes:
    return (
        f'<{action}Response xmlns="{_NAMESPACE}"><requestId>fake</requestId>{inner}'
        f"</{action}Response>"
    ).encode()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _name(tag: str) -> str:
    """Return a tag with any namespace, because moto answers in several versions of EC2's."""
    return f"{{*}}{tag}"
