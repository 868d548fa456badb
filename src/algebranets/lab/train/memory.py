"""Errors when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that the GPU or the CPU is out of memory. torch has no error class for the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


@contextmanager
def within_memory() -> Iterator[None]:
    """Turn an out-of-memory error into one that says which setting to reduce."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        where = "the GPU" if isinstance(error, torch.OutOfMemoryError) else "the computer"
        said = str(error).partition(" GPU ")[0]  # the rest lists who uses the memory
        raise ValueError(
            f"a batch must fit into {where}'s memory, but torch says: {said} Use a smaller data.batch_size, or a "
            "smaller data.eval_batch_size if it failed in evaluation."
        ) from error
