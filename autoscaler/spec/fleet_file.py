"""Fleet files: YAML with shares of users and agreed prices.

::

    shares: {ada: 2, bob: 1}         # of scarce instances; the default of a user is 1
    discounts:                       # on providers' prices; the first that matches applies
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
    """Content of a fleet file. `shares` are by user name."""

    shares: Mapping[str, float] = field(default_factory=dict)
    discounts: tuple[Discount, ...] = ()


class FleetForm(Form):
    """Form of a whole fleet file."""

    shares: dict[Text, Share] = Field(default_factory=dict)
    discounts: tuple[DiscountForm, ...] = ()


def load_fleet(path: Path) -> FleetFile:
    """Read a fleet file.

    Raises:
        SpecError: the file can't be read or used. The message has a line for each problem: file,
            line number, key, problem and remedy.
    """
    form = validated(read_document(path, "a fleet file (docs/economics-fleets.md)"), FleetForm)
    return FleetFile(form.shares, tuple(discount.discount() for discount in form.discounts))
