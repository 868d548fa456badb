"""Counters by which the programs of a kernel wait for each other or find out which is the last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import torch
from torch import Tensor

#: The number of counters on a device, and the smallest number that a stream gets.
NUM_COUNTERS, FOR_A_STREAM = 1 << 20, 512


def counters(device: torch.device, count: int) -> Tensor:
    """Return at least ``count`` counters that are zero. The kernel must leave them zero.

    They are reused, because allocating new zeros would be a launch of its own.
    """
    captures = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if device not in _COUNTERS:
        if captures or device.type != "cuda":
            return torch.zeros(count, dtype=torch.int32, device=device)
        _COUNTERS[device] = Counters(device)
    return _COUNTERS[device].take(count, captures)


class Counters:
    """The counters of a device. They are zero unless a kernel is using them.

    Kernels of one stream run one after the other and share their counters. A kernel in a CUDA graph may be replayed
    while any other kernel runs, so it has counters of its own. When all counters are taken, new ones are allocated.
    """

    def __init__(self, device: torch.device) -> None:
        # This thread may be preparing a graph, whose memory pool would own the allocation. So another thread allocates.
        with ThreadPoolExecutor(1) as thread:
            self.free = thread.submit(self._zeros, device).result()
        self.of_stream: dict[int, Tensor] = {}
        self.lock = Lock()

    @staticmethod
    def _zeros(device: torch.device) -> Tensor:
        zeros = torch.zeros(NUM_COUNTERS, dtype=torch.int32, device=device)
        torch.cuda.synchronize(device)  # the zeros are now visible to every stream
        return zeros

    def take(self, count: int, captures: bool) -> Tensor:
        """Return counters for a kernel of the current stream; ``captures`` says whether it is being captured."""
        if captures:
            return self.give(count)
        stream = torch.cuda.current_stream(self.free.device).cuda_stream
        if stream not in self.of_stream or len(self.of_stream[stream]) < count:
            self.of_stream[stream] = self.give(max(count, FOR_A_STREAM))
        return self.of_stream[stream]

    def give(self, count: int) -> Tensor:
        """Return ``count`` counters that are not in use."""
        with self.lock:
            given, self.free = self.free[:count], self.free[count:]
        return given if len(given) == count else given.new_zeros(count)


#: The counters of each device.
_COUNTERS: dict[torch.device, Counters] = {}
