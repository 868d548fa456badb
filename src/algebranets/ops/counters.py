"""Counters with which programs of a kernel find out which of them is the last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import torch
from torch import Tensor

#: How many there are on a device, and how many a stream has at least.
NUM_COUNTERS, FOR_A_STREAM = 1 << 20, 512


def counters(device: torch.device, count: int) -> Tensor:
    """``count`` zeros, which a kernel must leave zero: making new ones would be a launch."""
    captures = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if device not in _COUNTERS:
        if captures or device.type != "cuda":
            return torch.zeros(count, dtype=torch.int32, device=device)
        _COUNTERS[device] = Counters(device)
    return _COUNTERS[device].take(count, captures)


class Counters:
    """Numbers on a device, all zero whenever no kernel counts with them.

    Kernels of one stream follow each other, and count with the same ones. A kernel in a graph may be replayed beside
    any other, and has its own for ever. When all are given away, new ones are made for each kernel.
    """

    def __init__(self, device: torch.device) -> None:
        # What this thread allocates may belong to a graph that it prepares, so another one does it.
        with ThreadPoolExecutor(1) as thread:
            self.free = thread.submit(self._zeros, device).result()
        self.of_stream: dict[int, Tensor] = {}
        self.lock = Lock()

    @staticmethod
    def _zeros(device: torch.device) -> Tensor:
        zeros = torch.zeros(NUM_COUNTERS, dtype=torch.int32, device=device)
        torch.cuda.synchronize(device)  # they are there for every stream
        return zeros

    def take(self, count: int, captures: bool) -> Tensor:
        """``count`` of them for a kernel of the current stream, which is being captured or not."""
        if captures:
            return self.give(count)
        stream = torch.cuda.current_stream(self.free.device).cuda_stream
        if stream not in self.of_stream or len(self.of_stream[stream]) < count:
            self.of_stream[stream] = self.give(max(count, FOR_A_STREAM))
        return self.of_stream[stream]

    def give(self, count: int) -> Tensor:
        """``count`` that nobody has."""
        with self.lock:
            given, self.free = self.free[:count], self.free[count:]
        return given if len(given) == count else given.new_zeros(count)


#: Those of each device.
_COUNTERS: dict[torch.device, Counters] = {}
