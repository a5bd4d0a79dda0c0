"""All that has to be there before a job's script can start, made in a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotAllowed, Unavailable
from autoscaler.node.account import give, make_writable, obstacle, own_user
from autoscaler.node.back_off import BackOff
from autoscaler.node.container import set_up_container, setup_image
from autoscaler.node.disk import Disk
from autoscaler.node.engine import find_engine
from autoscaler.node.environment import first_in_path, job_environment, packages
from autoscaler.node.process import Process
from autoscaler.node.setups import (
    SetupEntry,
    Stopped,
    commands_script,
    setup_key,
    venv_script,
)
from autoscaler.node.shim import Order
from autoscaler.node.state import Prepared
from autoscaler.node.work import copy_tree, link_data
from autoscaler.spec.bundle import unpack
from autoscaler.wire.client import NodeClient
from autoscaler.wire.messages import Assignment
from providers.metadata import InstanceMetadata

_log = logging.getLogger(__name__)
