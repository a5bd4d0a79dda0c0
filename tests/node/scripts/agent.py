"""Agent as a program, with the settings of a test."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from autoscaler.clock import SystemClock
from autoscaler.node.instance import NodeSettings
from autoscaler.node.run import run_agent
from autoscaler.node.user_data import load_user_data
from providers.metadata import read_metadata

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
settings = json.loads(sys.argv[1])
if "launcher" in settings:
    settings["launcher"] = tuple(settings["launcher"])
run_agent(
    load_user_data(Path(sys.argv[2])),
    read_metadata(os.environ),
    SystemClock(),
    NodeSettings(**settings),
)
