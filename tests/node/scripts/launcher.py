"""Stand-in for torchrun: starts the requested processes, until one of them fails.

It prints the place of an instance in its gang.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

count, *command = sys.argv[1:]
if count == "--gang":
    print("gang", *command[:5], flush=True)
    count, *command = command[5:]
ranks = [
    subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": str(rank)})
    for rank in range(int(count))
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
