"""Tuple-sparse weights: the tuples that are not zero, sorted by output, each with the index of its input.

A weight has ``num_out`` x ``num_in`` tuples. Those of output o that are not zero are numbered from ``starts[o]`` up to
``starts[o + 1]``, exclusive. ``values``, (tuple, component), has their components over `Algebra.stored`, in the order
of its table, and ``indices`` has their inputs. A tuple has one index for all its components. An index takes two bytes
if ``num_in`` allows, else four.

``maps``, (output, span), has the same information for kernels that fill tiles: one number for every 32 inputs of an
output. The bits of its lower half say which of the inputs have a tuple. Its upper half is the number of tuples of the
weight that come before these inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.sparse_linear.maps import SPAN
from algebranets.product.layout import stored_tuples, weight_from_stored_tuples


@dataclass(frozen=True)
class TupleSparse:
    """A tuple-sparse linear weight, in the format that the module describes."""

    starts: Tensor
    indices: Tensor
    values: Tensor
    maps: Tensor
    num_in: int
    #: The largest number of tuples of an output.
    longest: int
    algebra: Algebra
    #: The weight with its zeros, as `expand` makes it, if it is kept for inputs of many rows.
    dense: Tensor | None = None

    @property
    def num_out(self) -> int:
        return self.starts.shape[0] - 1

    @property
    def sparsity(self) -> float:
        """The share of the weight's tuples that are zero and not stored."""
        return 1 - self.values.shape[0] / (self.num_out * self.num_in)


def compress(weight: Tensor, algebra: Algebra) -> TupleSparse:
    """Compress a stored linear weight to its tuples that are not zero.

    >>> import torch, algebranets as an
    >>> layer = an.nn.Linear(64, 64, algebra=an.M2R)
    >>> layer.weight_tuples = layer.weight_tuples * (torch.arange(16) % 4 == 0)  # one input of four
    >>> w = compress(layer.weight.detach(), an.M2R)
    >>> w.sparsity, w.values.shape, w.indices[:4].tolist()
    (0.75, torch.Size([64, 4]), [0, 4, 8, 12])
    >>> torch.equal(expand(w), layer.weight)
    True
    """
    tuples = stored_tuples(weight, algebra)
    kept = (tuples != 0).any(0)
    out, inp = kept.nonzero(as_tuple=True)
    starts = torch.zeros(len(kept) + 1, dtype=torch.int32, device=weight.device)
    starts[1:] = kept.sum(1).cumsum(0)
    indices = inp.to(_index_dtype(kept.shape[1]))
    return assemble(starts, indices, tuples[:, out, inp].T.contiguous(), kept.shape[1], algebra)


def assemble(starts: Tensor, indices: Tensor, values: Tensor, num_in: int, algebra: Algebra) -> TupleSparse:
    """Check the parts of a tuple-sparse weight and compute its ``maps``.

    Raises a `ValueError` if the parts are not in the format that the module describes. Kernels read memory at these
    indices without a check, so every weight from outside must go through this function.
    """
    _check(starts, indices, values, num_in, algebra)
    spans, inp = ceil(num_in / SPAN), indices.long()
    place = outputs(starts, len(inp)) * spans + inp // SPAN
    bits = place.new_zeros((len(starts) - 1) * spans).index_add_(0, place, torch.ones_like(inp) << inp % SPAN)
    counts = torch.zeros_like(bits).index_add_(0, place, torch.ones_like(inp))
    maps = bits | (counts.cumsum(0) - counts) << SPAN
    return TupleSparse(starts, indices, values, maps.view(-1, spans), num_in, int(starts.diff().max()), algebra)


def _check(starts: Tensor, indices: Tensor, values: Tensor, num_in: int, algebra: Algebra) -> None:
    for part, dtype, name in ((starts, torch.int32, "starts"), (indices, _index_dtype(num_in), "indices")):
        if part.dim() != 1 or part.dtype != dtype:
            raise ValueError(
                f"{name} of a weight with {num_in} inputs must be {dtype} numbers in one axis; "
                f"got {part.dtype} of shape {tuple(part.shape)}."
            )
    if values.shape != (len(indices), algebra.dim):
        raise ValueError(
            f"values must hold the {algebra.dim} components of a tuple for each of the {len(indices)} indices; "
            f"got shape {tuple(values.shape)}."
        )
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(indices) or (starts[1:] < starts[:-1]).any():
        raise ValueError(
            f"starts must begin at 0, never decrease and end at {len(indices)}, the number of indices; got "
            f"{starts[:3].tolist()} ... {starts[-3:].tolist()}."
        )
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < num_in:
        raise ValueError(
            f"indices must lie between 0 and {num_in - 1}, the last input; got numbers from {int(indices.min())} to "
            f"{int(indices.max())}."
        )
    output = outputs(starts, len(indices))
    if ((output[1:] == output[:-1]) & (indices[1:] <= indices[:-1])).any():
        raise ValueError("indices must increase from tuple to tuple of each output; they do not.")


def _index_dtype(num_in: int) -> torch.dtype:
    """The dtype of indices: int16 if it can count ``num_in`` inputs, else int32."""
    return torch.int16 if num_in <= torch.iinfo(torch.int16).max + 1 else torch.int32


def expand(w: TupleSparse) -> Tensor:
    """Expand a tuple-sparse weight to a stored weight. This is the inverse of `compress`."""
    tuples = w.values.new_zeros(w.algebra.dim, w.num_out, w.num_in)
    tuples[:, outputs(w.starts, len(w.indices)), w.indices.long()] = w.values.T
    return weight_from_stored_tuples(tuples, w.algebra)


def outputs(starts: Tensor, num_tuples: int) -> Tensor:
    """The index of the output that each tuple belongs to."""
    numbers = torch.arange(len(starts) - 1, device=starts.device)
    return numbers.repeat_interleave(starts.diff(), output_size=num_tuples)
