"""A trial's worker in the directory that WORK names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hpo.worker.process import main

sys.path.append(str(Path(__file__).parents[3]))  # the objective is a test's
os.chdir(os.environ["WORK"])
main()
