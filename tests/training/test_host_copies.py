"""Copies of a state in memory that is kept from one checkpoint to the next."""

from __future__ import annotations

import pytest
import torch

from autoscaler.training.state import host_copies
from autoscaler.training.state.host_copies import HostCopies


def _state(scale: float) -> dict[str, object]:
    transposed = torch.arange(6, dtype=torch.float32).reshape(2, 3).t() * scale
    return {
        "weights": torch.full((3, 5), scale),
        "transposed": transposed,
        "narrow": torch.full((7,), scale, dtype=torch.bfloat16),
        "flags": [torch.tensor([True, False]), torch.tensor(scale, dtype=torch.float64)],
        "empty": torch.empty(0, 4),
        "parameter": torch.nn.Parameter(torch.full((2,), scale)),
        "sparse": torch.eye(3).to_sparse() * scale,
        "step": 12,
        "name": "x",
    }


def _assert_equal(copied: object, original: object) -> None:
    if isinstance(original, torch.Tensor):
        assert isinstance(copied, torch.Tensor)
        assert copied.device.type == "cpu" and copied.dtype == original.dtype
        assert not copied.requires_grad
        assert torch.equal(copied.to_dense(), original.detach().to_dense())
    elif isinstance(original, dict | list):
        pairs = original.items() if isinstance(original, dict) else enumerate(original)
        for key, value in pairs:
            _assert_equal(copied[key], value)  # type: ignore[index]
    else:
        assert copied == original


def test_copies_are_equal_and_do_not_change_with_the_state() -> None:
    for device in ("cpu", "cuda"):  # tensors of the CPU in kept memory, and in new memory
        state = _state(2.0)
        copied = HostCopies(kept_device=device).copy(state)
        for leaf in torch.utils._pytree.tree_leaves(state):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                leaf.detach().zero_()
        _assert_equal(copied, _state(2.0))


def test_memory_is_kept_from_one_checkpoint_to_the_next_and_grows_with_the_state() -> None:
    copies = HostCopies(kept_device="cpu")
    first = copies.copy({"a": torch.ones(1000)})["a"]
    second = copies.copy({"a": torch.full((1000,), 2.0)})["a"]
    assert second.data_ptr() == first.data_ptr() and second.unique().tolist() == [2.0]
    larger = copies.copy({"a": torch.ones(1000), "b": torch.full((9,), 3.0)})
    assert larger["a"].unique().tolist() == [1.0] and larger["b"].unique().tolist() == [3.0]
    smaller = copies.copy({"b": torch.full((9,), 4.0)})["b"]
    assert smaller.tolist() == [4.0] * 9


def test_memory_is_reserved_ahead_of_the_first_copy() -> None:
    copies = HostCopies(kept_device="cpu")
    copies.reserve({"a": torch.ones(1000)})
    reservation = copies._reservation
    assert reservation is not None
    reservation.join()
    reserved = copies._buffer.data_ptr()
    copied = copies.copy({"a": torch.ones(1000)})["a"]
    assert copied.data_ptr() == reserved and copied.unique().tolist() == [1.0]
    copies.reserve({"a": torch.ones(10)})
    assert copies._reservation is None, "there is enough"
    assert copies.copy({"a": torch.ones(10)})["a"].data_ptr() == reserved


def test_memory_that_can_not_be_reserved_is_asked_for_again_at_the_copy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(size_bytes: int) -> torch.Tensor:
        raise RuntimeError(f"can't allocate {size_bytes} bytes")

    copies = HostCopies(kept_device="cpu")
    with monkeypatch.context() as during:
        during.setattr(host_copies, "_locked_memory", full)
        copies.reserve({"a": torch.ones(1000)})
        reservation = copies._reservation
        assert reservation is not None
        reservation.join()
    assert "can't allocate" in caplog.text
    assert copies.copy({"a": torch.ones(1000)})["a"].unique().tolist() == [1.0]
