"""rho(w), the real matrix of a block, and products by it without its structural zeros."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from algebranets.algebra import Algebra, Block

#: From how many structural zeros per output on they are skipped, on the CPU. Skipping saves multiplies and costs a
#: copy of the output and further launches; on an H200 it did not pay. `algebranets bench zeros` measures it.
SKIP_ZEROS_FROM = 192


def matrix(weight: Tensor, algebra: Algebra, block: Block, transposed: bool = False, stacks: int = 1) -> Tensor:
    """rho(w): the real weight that one copy of ``block`` is multiplied by, laid out as torch's own.

    ``(stacks * k * first, k * second, *kernel)``: for folded weights it is the weight itself.
    """
    if algebra.folded:
        return weight
    components = weight.unflatten(0, (stacks * algebra.dim, -1)).unbind(0)
    scaled: dict[tuple[int, int], Tensor] = {}

    def times(coefficient: int, component: int) -> Tensor:
        if coefficient == 1:
            return components[component]
        if (coefficient, component) not in scaled:
            scaled[coefficient, component] = coefficient * components[component]
        return scaled[coefficient, component]

    def cell(stack: int, p: int, q: int) -> Tensor:
        entry = block.entries[q][p] if transposed else block.entries[p][q]
        terms = [times(c, stack * algebra.dim + i) for i, c in entry]
        return sum(terms[1:], start=terms[0]) if terms else torch.zeros_like(components[0])

    side = range(block.size)
    return join([join([cell(s, p, q) for q in side], dim=1) for s in range(stacks) for p in side], dim=0)


def split(x: Tensor, algebra: Algebra, dim: int) -> tuple[Tensor, ...]:
    """The channels of each block: slices of ``x`` along its channel axis."""
    channels = x.shape[dim] // algebra.dim
    return x.split([block.dim * channels for block in algebra.blocks], dim)


def join(parts: list[Tensor], dim: int) -> Tensor:
    """The parts one behind the other; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def bias_fits(algebra: Algebra) -> bool:
    """Whether torch's own bias argument can hold ours: where copies share a row, their biases differ."""
    return len(algebra.blocks) == 1 and algebra.blocks[0].num_copies == 1


def spans_worth_skipping(block: Block, x: Tensor, num_summands: int) -> tuple[tuple[slice, slice], ...] | None:
    """The parts of rho(w) to multiply ``x`` by, or None for the whole of it."""
    pays = x.device.type == "cpu" and block.waste * num_summands >= SKIP_ZEROS_FROM
    return block.spans if pays else None


def multiply(
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    spans: tuple[tuple[slice, slice], ...] | None,
    size: int,
) -> Tensor:
    """``product(x, weight, bias)`` without the zeros of the block outside of ``spans``; channels are axis 1."""
    if spans is None:
        return product(x, weight, bias)
    out, inp = weight.shape[0] // size, weight.shape[1] // size
    parts = []
    for rows, columns in spans:
        r, c = slice(rows.start * out, rows.stop * out), slice(columns.start * inp, columns.stop * inp)
        parts.append(product(x[:, c], weight[r, c], None if bias is None else bias[r]))
    return torch.cat(parts, dim=1)
