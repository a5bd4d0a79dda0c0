"""Tags of instances, in addition to the tags of `autoscaler.domain.instance`."""

from __future__ import annotations

from typing import Final

TOKEN_TAG: Final = "castor:token"
OFFER_TAG: Final = "castor:offer"
DEPLOYMENT_TAG: Final = "castor:deployment"
POOL_TAG: Final = "castor:pool"
HOST_TAG: Final = "castor:controller-of"
"""Tag of the controller's host. The controller may end instances with `DEPLOYMENT_TAG` only."""
