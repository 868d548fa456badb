"""Tuple-sparse weights: the tuples that are not zero, row by row of outputs, each with one index.

Of the weight with ``num_out`` x ``num_in`` tuples, output o has the tuples ``starts[o]`` up to ``starts[o + 1]``:
``values``, (tuple, component in table order), stand for the inputs ``indices``. An index takes two bytes where they
suffice, and is there once for all components. ``maps`` say the same once more, for kernels that fill tiles: of every 32
inputs of an output, which have a tuple, as bits, and in the upper half of the number how many tuples come before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product.layout import weight_from_tuples, weight_tuples

#: Inputs that one number of ``maps`` is of, a bit each in its lower half.
SPAN = 32


@dataclass(frozen=True)
class TupleSparse:
    """A weight, as the module says."""

    starts: Tensor
    indices: Tensor
    values: Tensor
    maps: Tensor
    num_in: int
    #: The most tuples that an output has.
    longest: int
    algebra: Algebra

    @property
    def num_out(self) -> int:
        return self.starts.shape[0] - 1

    @property
    def sparsity(self) -> float:
        """The share of the tuples that is not there."""
        return 1 - self.values.shape[0] / (self.num_out * self.num_in)


def compress(weight: Tensor, algebra: Algebra) -> TupleSparse:
    """The tuples of a stored linear weight that are not zero.

    >>> import torch, algebranets as an
    >>> layer = an.nn.Linear(64, 64, algebra=an.M2R)
    >>> layer.weight_tuples = layer.weight_tuples * (torch.arange(16) % 4 == 0)  # one input of four
    >>> w = compress(layer.weight.detach(), an.M2R)
    >>> w.sparsity, w.values.shape, w.indices[:4].tolist()
    (0.75, torch.Size([64, 4]), [0, 4, 8, 12])
    >>> torch.equal(expand(w), layer.weight)
    True
    """
    tuples = weight_tuples(weight, algebra)
    kept = (tuples != 0).any(0)
    out, inp = kept.nonzero(as_tuple=True)
    starts = torch.zeros(len(kept) + 1, dtype=torch.int32, device=weight.device)
    starts[1:] = kept.sum(1).cumsum(0)
    small = kept.shape[1] <= torch.iinfo(torch.int16).max + 1
    indices = inp.to(torch.int16 if small else torch.int32)
    return assemble(starts, indices, tuples[:, out, inp].T.contiguous(), kept.shape[1], algebra)


def assemble(starts: Tensor, indices: Tensor, values: Tensor, num_in: int, algebra: Algebra) -> TupleSparse:
    """A weight with all that follows from ``starts`` and ``indices``."""
    spans, inp = ceil(num_in / SPAN), indices.long()
    place = outputs(starts, len(inp)) * spans + inp // SPAN
    bits = place.new_zeros((len(starts) - 1) * spans).index_add_(0, place, torch.ones_like(inp) << inp % SPAN)
    counts = torch.zeros_like(bits).index_add_(0, place, torch.ones_like(inp))
    maps = bits | (counts.cumsum(0) - counts) << SPAN
    return TupleSparse(starts, indices, values, maps.view(-1, spans), num_in, int(starts.diff().max()), algebra)


def expand(w: TupleSparse) -> Tensor:
    """The stored weight that `compress` was given."""
    tuples = w.values.new_zeros(w.algebra.dim, w.num_out, w.num_in)
    tuples[:, outputs(w.starts, len(w.indices)), w.indices.long()] = w.values.T
    return weight_from_tuples(tuples, w.algebra)


def outputs(starts: Tensor, num_tuples: int) -> Tensor:
    """The output that each tuple belongs to."""
    numbers = torch.arange(len(starts) - 1, device=starts.device)
    return numbers.repeat_interleave(starts.diff(), output_size=num_tuples)
