"""Files of a fleet: YAML that says what holds for all of its users and offers.

::

    shares: {ada: 2, bob: 1}         # of what is scarce; who is not named has 1
    discounts:                       # on what the providers say; the first that covers it counts
      - {provider: aws, type: "g5*", factor: 0.8, reason: enterprise agreement}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from autoscaler.market.prices import Discount
from autoscaler.spec.form_file import read_document, validated
from autoscaler.spec.forms import Form
from autoscaler.spec.job_form import Text
from autoscaler.spec.offers_form import DiscountForm

Share = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What a file of a fleet says. `shares` are by user."""

    shares: Mapping[str, float] = field(default_factory=dict)
    discounts: tuple[Discount, ...] = ()


class FleetForm(Form):
    """A whole file of a fleet."""

    shares: dict[Text, Share] = Field(default_factory=dict)
    discounts: tuple[DiscountForm, ...] = ()


def load_fleet(path: Path) -> FleetFile:
    """Read a file of a fleet.

    Raises:
        SpecError: the file can't be read or used. Every problem is a line with the file, the line
            number, the key, what is wrong and what was meant.
    """
    form = validated(read_document(path), FleetForm)
    return FleetFile(form.shares, tuple(each.discount() for each in form.discounts))
