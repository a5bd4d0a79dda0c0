"""A trial's worker in the directory that WORK names."""

from __future__ import annotations

import os

from hpo.worker import main

os.chdir(os.environ["WORK"])
main()
