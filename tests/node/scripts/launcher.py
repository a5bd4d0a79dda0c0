"""Stand-in for torchrun: starts the requested processes, until one of them fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time

ranks = [
    subprocess.Popen(sys.argv[2:], env={**os.environ, "LOCAL_RANK": str(rank)})
    for rank in range(int(sys.argv[1]))
]
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        for rank in ranks:
            rank.kill()
        break
    time.sleep(0.01)
codes = [rank.wait() for rank in ranks]
bad = next((code for code in codes if code), 0)
sys.exit(128 - bad if bad < 0 else bad)
