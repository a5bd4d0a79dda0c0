"""Contract of a provider's plug-in, which opens the provider from a source of pools.

A plug-in is registered under the name of its provider as an entry point of the group
`castor.providers`. A file of pools names the provider by its key `cloud`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.spec.forms import Form
from providers.base import Provider
from providers.bill import Account, BillSource
from providers.blocks import BlockMarket
from providers.storage import JobStorage


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Facts about the controller that opens a provider.

    Attributes:
        state: the controller's state directory. A provider's files there have the provider's
            name.
        host: the address at which instances reach the controller.
        controller: the id of the controller, which owns the instances it launches.
        clock: the clock.
    """

    state: Path
    host: str
    controller: str
    clock: Clock

    @property
    def pools_cache(self) -> Path:
        """Folder with copies of the pools that were last in force."""
        return self.state / "pools"

    def prices_file(self, provider: str) -> Path:
        """Return the file with a provider's last known prices, used for removed pools."""
        return self.state / "prices" / f"{provider}.json"


class ProviderPlugin(ABC):
    """Provider that pools can name.

    The class has no parameters. Its module is imported to check and to list it, so it imports an
    SDK in its methods only.
    """

    @abstractmethod
    def open_provider(self, source: str, context: ControllerContext) -> Provider:
        """Return the provider of the pools in `source`: a file, or an address.

        Addresses begin with the name of the provider and a colon.

        Raises:
            SpecError: the source can't be read or used, or instances can't reach the controller.
            ProviderError: the cloud does not return the pools.
        """

    def pools_form(self) -> type[Form] | None:
        """Return the form of a file of pools, for its schema; None: the provider has none."""
        return None

    def open_storage(self, source: str, context: ControllerContext) -> JobStorage | None:
        """Return the storage of jobs' files that `source` names.

        None: the cloud has none. Without any storage, instances must share the disk of the
        controller's state directory.

        Raises:
            SpecError: the source can't be read or used.
            ProviderError: the cloud does not return the pools, or there are no credentials.
        """
        return None

    def open_block_market(self, source: str, clock: Clock) -> BlockMarket:
        """Return the market in which `castor buy` buys for the pools in `source`.

        Raises:
            SpecError: the cloud has none, or the source can't be read.
            ProviderError: the cloud does not return the pools.
        """
        raise SpecError("castor buy buys Capacity Blocks of EC2 only", source)

    def shell_command(self, offer_id: str, cloud_id: str) -> tuple[str, ...] | None:
        """Return the command that opens a shell on an instance, for the user's own credentials.

        None: the offer is not of this cloud, or its instances have no shell.
        """
        return None

    def open_account(self, source: BillSource, clock: Clock) -> Account:
        """Return the account whose bill `castor reconcile` compares with the ledger.

        Raises:
            SpecError: the provider reports no bills, or `source` is malformed.
        """
        raise SpecError("this provider reports no bills", "--cloud")
