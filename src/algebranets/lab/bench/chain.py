"""Chains of layers, timed as one: so long that no weight is still in a GPU's cache when its turn comes again."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import torch
from torch import Tensor

from algebranets.lab.bench.timing import Run, Step

#: How often a chain's weights would fill the cache, and how many layers a chain has at least: on a GPU the start of a
#: CUDA graph counts in a short one.
CACHES, NUM_LAYERS = 4, {"cpu": 4, "cuda": 8}


def num_layers(run: Run, layer_bytes: int) -> int:
    """How many layers of so many bytes each a chain has."""
    cache = torch.cuda.get_device_properties(run.device).L2_cache_size if run.on_gpu else 0
    return max(NUM_LAYERS[run.device], ceil(CACHES * cache / layer_bytes))


def through(chain: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    """The step that sends ``x`` through a chain, without gradients."""

    def step() -> None:
        with torch.no_grad():
            chain(x)

    return step
