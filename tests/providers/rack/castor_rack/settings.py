"""Settings of the rack: a file for ``castor serve --pools``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from autoscaler.spec.form_file import read_text
from autoscaler.spec.forms import Form
from autoscaler.spec.job_form import Count, Text
from autoscaler.spec.quantities import Duration
from providers.cloud.forms import Url


class RackSettings(Form):
    """Account of the rack, and the bounds of what is bought there."""

    cloud: Literal["rack"]
    url: Url
    token_file: Path | None = None
    types: Annotated[tuple[Text, ...], Field(min_length=1)]
    max_machines: Count
    boot: Duration = 60.0

    def token(self) -> str:
        """Return the account's token; empty without a file.

        Raises:
            SpecError: the file can't be read.
        """
        return "" if self.token_file is None else read_text(self.token_file).strip()
