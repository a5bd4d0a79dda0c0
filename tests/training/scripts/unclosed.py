"""A script that ends without leaving its session."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack

import torch
from torch.utils.data import TensorDataset

from autoscaler.training import session

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
stack = ExitStack()
job = stack.enter_context(session(model, optimizer, data, batch_size=16))
for inputs, targets in itertools.islice(job.batches(epochs=99), int(os.environ["STEPS"])):
    job.step(torch.nn.functional.mse_loss(job.model(inputs), targets))
