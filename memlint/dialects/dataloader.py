"""`torch.utils.data.DataLoader(...)` as a place to write: its only word for memory is the batch size (torch 2.13)."""

from __future__ import annotations

from memlint.typed import Any

NAME = "dataloader"


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument of `DataLoader`; None where it cannot say it."""
    return [("batch_size", value)] if key == "batch.micro_batch_size" else None
