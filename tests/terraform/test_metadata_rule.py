"""The rule that closes the metadata service, in a network of its own on this machine's kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform.conftest import MODULE

# The address of the service on the loopback, a server on two of its ports, and control groups of
# version 2 with one container.
GROUND = """
mount -t cgroup2 none /sys/fs/cgroup
group=/sys/fs/cgroup/castor.slice
mkdir -p $group/docker-1.scope
trap 'kill $!; sleep 0.2; rmdir $group/docker-1.scope $group' EXIT
python3 - <<'END'
import fcntl, socket, struct
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
address = socket.inet_aton("169.254.169.254")
fcntl.ioctl(control, 0x8916, struct.pack("16sH2x4s8x", b"lo:1", socket.AF_INET, address))
END
cat > serve.py <<'END'
import pathlib, socket, time
servers = [socket.create_server(("169.254.169.254", port)) for port in (80, 53)]
pathlib.Path("ready").touch()
time.sleep(60)
END
cat > ask.py <<'END'
import os, socket, sys
os.setuid(int(sys.argv[1]))
client = socket.socket()
client.settimeout(5)
client.bind(("127.0.0.1", 0))
try:
    client.connect(("169.254.169.254", int(sys.argv[2])))
    print("reached")
except OSError as error:
    print(type(error).__name__)
END
"""
ASKS = """
python3 serve.py &
until [ -e ready ]; do sleep 0.1; done
python3 ask.py 0 80
python3 ask.py 20000 80
python3 ask.py 20000 53
echo $$ > $group/docker-1.scope/cgroup.procs
python3 ask.py 0 80
echo $$ > /sys/fs/cgroup/cgroup.procs
"""


def can_enter_a_network_of_its_own() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nft") is None:
        return False
    mount = ["unshare", "-nm", "mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"]
    return subprocess.run(mount, capture_output=True).returncode == 0


def test_root_outside_containers_alone_reaches_the_metadata_service(tmp_path: Path) -> None:
    """All reach the resolver of Compute Engine, which is at the same address."""
    if not can_enter_a_network_of_its_own():
        pytest.skip("needs root, unshare, nft and control groups of version 2")
    agent = (MODULE / "files" / "agent.sh").read_text()
    close = re.search(r"^nft -f - <<'TABLE'.*?^TABLE$", agent, re.MULTILINE | re.DOTALL)
    assert close is not None
    script = "\n".join(["set -e", GROUND, close[0].replace(" || {", ""), ASKS])
    done = subprocess.run(
        ["unshare", "-nm", "bash", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "reached",
        "ConnectionRefusedError",
        "reached",
        "ConnectionRefusedError",
    ]
