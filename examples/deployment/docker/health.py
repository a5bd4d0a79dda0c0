"""Health of the controller of a state directory: exit status 0 if its loop ticks, else 1.

The directory is that of CASTOR_STATE. Its `client.json` has the address and the authority of the
controller. A follower is healthy, too.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

TIMEOUT_SECONDS = 8.0


def main() -> int:
    """Ask the controller, and return the exit status."""
    file = Path(os.environ["CASTOR_STATE"]) / "client.json"
    try:
        client = json.loads(file.read_text())
        authority = client.get("authority")
        context = ssl.create_default_context(cafile=authority)
        # The certificate need not name the address that a container binds to.
        context.check_hostname = False
        is_tls = client["url"].startswith("https:")
        with urlopen(
            f"{client['url']}/livez",
            timeout=TIMEOUT_SECONDS,
            context=context if is_tls else None,
        ):
            return 0
    except (OSError, URLError, ValueError, KeyError) as error:
        print(f"castor: no healthy controller: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
