"""Pydantic forms of an offers file."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from autoscaler.domain.offer import LimitUnit, Purchase
from autoscaler.market.prices import Discount
from autoscaler.spec.forms import Form, one_or_many, short_for, text_like
from autoscaler.spec.job_form import Count, Text
from autoscaler.spec.quantities import (
    Duration,
    MomentText,
    Money,
    parse_moment,
)

_BYTES_PER_UNIT: Final = {"Gbit": 1e9 / 8, "Mbit": 1e6 / 8, "GB": 1e9, "MB": 1e6}
_BANDWIDTH: Final = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s*({'|'.join(_BYTES_PER_UNIT)})/s")


def _parse_bandwidth(value: object) -> float:
    match = _BANDWIDTH.fullmatch(str(value).strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f'"{value}" is not a bandwidth: write it like 25Gbit/s or 3GB/s')
    return float(match[1]) * _BYTES_PER_UNIT[match[2]]


def _parse_factor(value: object) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f'"{value}" is not a number: write 0.8 for 20 % off') from error


def _parse_date(value: object) -> float:
    try:
        date = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise ValueError(f'"{value}" is not a date: write it like 2026-07-20') from error
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _parse_future_time(value: object, info: ValidationInfo) -> float:
    return parse_moment(str(value), info.context["now_seconds"] if info.context else 0.0)


_BandwidthText = text_like(
    rf"^\s*{_BANDWIDTH.pattern}\s*$".replace(r"\d", "[0-9]"), "25Gbit/s", "3GB/s"
)
_DateText = text_like("^[0-9]{4}-?[0-9]{2}-?[0-9]{2}", "2026-07-20")
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bandwidth = Annotated[
    float, BeforeValidator(_parse_bandwidth, json_schema_input_type=_BandwidthText)
]
Date = Annotated[float, BeforeValidator(_parse_date, json_schema_input_type=_DateText)]
Moment = Annotated[float, BeforeValidator(_parse_future_time, json_schema_input_type=MomentText)]


class OfferForm(Form):
    """Form of an item of `offers`."""

    id: Text | None = None
    type: Text | None = None
    provider: Text | None = None
    purchase: Purchase = Purchase.ON_DEMAND
    zone: Text | None = None
    devices: Count | None = None
    device_kind: Text | None = None
    usd_per_hour: Money | None = None
    boot: Duration | None = None
    network: Bandwidth | None = None
    reclaims_per_hour: Rate | None = None
    minimum_billed: Duration | None = None
    profile: Text | None = None
    max_instances: Count | None = None
    max_devices: Count | None = None
    until: Moment | None = None
    trace: Text | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.type is None and self.id is None:
            raise ValueError("needs a type of the catalogue, or an id and all other values")
        if self.max_instances is not None and self.max_devices is not None:
            raise ValueError("has two limits: leave out max_instances or max_devices")
        if self.purchase is Purchase.RESERVED:
            if self.max_instances is None and self.max_devices is None:
                raise ValueError("is reserved: set max_instances to the number reserved")
        elif self.until is not None:
            raise ValueError(
                f"{self.purchase} has no end: leave until out, or write purchase: reserved"
            )
        is_known = self.reclaims_per_hour is not None or self.trace is not None
        if self.purchase is Purchase.SPOT and not is_known:
            raise ValueError(
                "spot can be reclaimed: set reclaims_per_hour, 0 if it never is, or a trace"
            )
        if self.trace is not None and not self.purchase.is_at_times:
            raise ValueError(f"{self.purchase} is always available: leave trace out")
        if self.purchase is not Purchase.SPOT and self.reclaims_per_hour:
            raise ValueError(
                f"{self.purchase} is never reclaimed: leave reclaims_per_hour out, or write "
                "purchase: spot"
            )
        return self

    @property
    def offer_id(self) -> str:
        """Id as given, or type and purchase."""
        return self.id or f"{self.type}-{self.purchase}"


class LimitForm(Form):
    """Form of an item of `limits`: a limit on devices, instances or US dollars per hour."""

    name: Text
    devices: Count | None = None
    instances: Count | None = None
    usd_per_hour: Money | None = None
    offers: Annotated[tuple[Text, ...], one_or_many(Text), Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _has_one_maximum(self) -> Self:
        if len(self._maxima()) != 1:
            raise ValueError("needs exactly one of devices, instances and usd_per_hour")
        return self

    @property
    def bound(self) -> tuple[LimitUnit, float]:
        """Unit and maximum of the limit."""
        return self._maxima()[0]

    def _maxima(self) -> list[tuple[LimitUnit, float]]:
        maxima = [(unit, getattr(self, unit.value)) for unit in LimitUnit]
        return [(unit, float(maximum)) for unit, maximum in maxima if maximum is not None]


class PricesForm(Form):
    """Form of an item of `prices_from`. `file` is relative to the offers file."""

    file: Text
    as_of: Date | None = None


class DiscountForm(Form):
    """Form of an item of `discounts`."""

    provider: Text
    type: Text = "*"
    purchase: Purchase = Purchase.ON_DEMAND
    factor: (
        Annotated[Decimal, BeforeValidator(_parse_factor, json_schema_input_type=float)] | None
    ) = None
    usd_per_hour: Money | None = None
    reason: Text

    @model_validator(mode="after")
    def _is_valid(self) -> Self:
        self.discount()
        return self

    def discount(self) -> Discount:
        """Return the discount as an object of `market.prices`."""
        return Discount(
            provider=self.provider,
            reason=self.reason,
            instance_type=self.type,
            purchase=self.purchase,
            factor=self.factor,
            usd_per_hour=self.usd_per_hour,
        )


class OffersForm(Form):
    """Form of a whole offers file."""

    offers: Annotated[tuple[OfferForm, ...], Field(min_length=1)]
    limits: tuple[LimitForm, ...] = ()
    prices_from: Annotated[
        tuple[Annotated[PricesForm, short_for("file", Text | PricesForm)], ...],
        one_or_many(Text | PricesForm),
    ] = ()
    discounts: tuple[DiscountForm, ...] = ()
