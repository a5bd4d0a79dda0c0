"""Example of Transformers' Trainer as a replica of a fleet; EPOCHS and EXAMPLES set its length."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "huggingface" / "train.py"

if __name__ == "__main__":
    epochs, examples, output = (os.environ[name] for name in ("EPOCHS", "EXAMPLES", "OUTPUT"))
    sys.argv[1:] = ["--epochs", epochs, "--examples", examples, "--output", output]
    runpy.run_path(str(EXAMPLE), run_name="__main__")
