"""Stand-in for docker: records its arguments and runs commands on this machine.

An image is a file in the directory that ENGINE names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

state = Path(os.environ["ENGINE"])
state.mkdir(exist_ok=True)
arguments = sys.argv[1:]
with (state / "calls").open("a") as calls:
    print(json.dumps(arguments), file=calls)


def image(name: str) -> Path:
    return state / name.replace(":", "_").replace("/", "_")


match arguments:
    case ["image", "inspect", name]:
        sys.exit(0 if image(name).exists() else 1)
    case ["login", user, "--password-stdin", host]:
        if (user, sys.stdin.read()) != ("--username=robot", "open-sesame"):
            sys.exit("Error response from daemon: login attempt failed with status: 403 Forbidden")
        logins = Path(os.environ["DOCKER_CONFIG"], "config.json")
        assert os.environ["REGISTRY_AUTH_FILE"] == str(logins)
        logins.write_text(json.dumps({**json.loads(logins.read_text()), host: "open-sesame"}))
        print("WARNING! Your credentials are stored unencrypted", file=sys.stderr)
    case ["pull", name]:
        host, _, repository = name.partition("/")
        logins = Path(os.environ.get("DOCKER_CONFIG", "/nowhere"), "config.json")
        if host == "private" and (
            not logins.exists() or host not in json.loads(logins.read_text())
        ):
            sys.exit(f"Error response from daemon: {name}: no basic auth credentials")
        if host not in ("private", "registry") or repository.startswith("missing"):
            sys.exit(f"no such image: {name}")
        if host == "private":  # what the test looks at while there are credentials
            (state / "modes").write_text(f"{logins.parent.stat().st_mode:o}")
        if repository.startswith("slow"):
            (state / "pulling").touch()
            time.sleep(600)
        image(name).touch()
    case ["run", *options]:
        words = [option for option in options if option != "--rm"]
        count = next(i for i, word in enumerate(words) if not word.startswith("--"))
        given, (used, *command) = words[:count], words[count:]
        if not image(used).exists():
            sys.exit(f"no such image: {used}")
        directory = next(o.partition("=")[2] for o in given if o.startswith("--workdir="))
        passed = [option.partition("=")[2] for option in given if option.startswith("--env=")]
        environment = {name: os.environ[name] for name in ("PATH", *passed) if "=" not in name}
        environment.update(pair.split("=", 1) for pair in passed if "=" in pair)
        sys.exit(subprocess.run(command, cwd=directory, env=environment, check=False).returncode)
    case ["commit", *options]:
        image(options[-1]).touch()
    case ["rm", "--force", _]:
        pass
    case _:
        sys.exit(f"unknown command: {arguments}")
