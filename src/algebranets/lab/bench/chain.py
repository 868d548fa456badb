"""Chains of layers that are timed as one; their weights are too large to stay in a GPU's cache."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import torch
from torch import Tensor

from algebranets.lab.bench.timing import Run, Step

#: How many times the weights of a chain fill the cache, and the minimum number of layers. In a short chain, the start
#: of a CUDA graph would affect the time.
CACHES, NUM_LAYERS = 4, {"cpu": 4, "cuda": 8}


def chain_length(run: Run, layer_bytes: int) -> int:
    """The number of layers of a chain.

    Args:
        run: The run, whose device has the cache.
        layer_bytes: The bytes of one layer.
    """
    cache = torch.cuda.get_device_properties(run.device).L2_cache_size if run.on_gpu else 0
    return max(NUM_LAYERS[run.device], ceil(CACHES * cache / layer_bytes))


def forward_step(chain: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    """A function that runs a chain on ``x``, without gradients."""

    def step() -> None:
        with torch.no_grad():
            chain(x)

    return step
