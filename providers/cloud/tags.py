"""What instances are tagged with beside the tags of `autoscaler.domain.instance`."""

from __future__ import annotations

from typing import Final

TOKEN_TAG: Final = "castor:token"
OFFER_TAG: Final = "castor:offer"
DEPLOYMENT_TAG: Final = "castor:deployment"
POOL_TAG: Final = "castor:pool"
HOST_TAG: Final = "castor:controller-of"
"""Of the controller's host, in place of `DEPLOYMENT_TAG`: what has that, it may end."""
