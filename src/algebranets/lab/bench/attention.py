"""Benchmark of Transformer-XL's attention: our kernels, torch's attention with a mask, FlexAttention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import Case
from algebranets.lab.bench.case import measure as measure_case
from algebranets.lab.bench.rows import Row
from algebranets.lab.bench.timing import Run
from algebranets.nn.relative import sinusoids

ALGEBRAS = ("R", "M2R")
WINDOWS = (512, 1536)
#: Torch's implementations of attention. Without recomputation they store a tensor as large as the attention matrix;
#: ours does not.
PEERS = ("sdpa", "FlexAttention")
WIDTH, HEADS = 512, 4


def measure(
    run: Run, names: Iterable[str] = ALGEBRAS, windows: Iterable[int] = WINDOWS, batch: int = 8
) -> Iterator[Row]:
    """Measure the time of each of torch's implementations over that of our kernels, forward and backward, compiled.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        windows: Lengths of the segment. The memory before it is as long. There are four heads of 128 features.
        batch: Number of sequences.
    """
    names = list(names)
    for window in windows:
        for peer in PEERS:
            for recompute in (False, True):
                for name in names:
                    torch._dynamo.reset()  # every case compiles its own graph
                    yield measure_case(_case(algebras.get(name), window, peer, recompute, batch), run)


class _Segment(nn.Module):
    """Relative attention from a segment to itself and to the memory before it."""

    def __init__(self, layer: ann.RelativeAttention, window: int) -> None:
        super().__init__()
        self.layer, self.window = layer, window
        self.u, self.v = (nn.Parameter(torch.randn(WIDTH)) for _ in range(2))
        self.positions = nn.Buffer(sinusoids(window + 1, WIDTH))
        self.compile(fullgraph=True)

    def forward(self, x: Tensor) -> Tensor:
        memory, segment = x[:, : self.window].detach(), x[:, self.window :]
        return self.layer(segment, self.positions, self.u, self.v, memory)


class _Flex(ann.RelativeAttention):
    """Relative attention computed by FlexAttention, which skips positions outside the window."""

    def __init__(self, window: int, algebra: Algebra, recompute: bool) -> None:
        super().__init__(WIDTH, HEADS, algebra=algebra, recompute=recompute)
        self.mask = window_mask(window, window, torch.device("cuda"))

    def forward(self, x: Tensor, positions: Tensor, u: Tensor, v: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
        context = torch.cat([memory.to(x.dtype), x], dim=1)
        q, content_bias, position_bias = self._queries(self.q_proj(x), u, v)
        k, values = self._heads(self.k_proj(context)), self._heads(self.v_proj(context))
        r = self._heads(self.r_proj(positions.to(x.dtype)))
        arguments = (q + content_bias, q + position_bias, k, values, r, self.mask)
        if self.recompute:
            y = checkpoint(flex, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            y = flex(*arguments)
        return self.out_proj(product.join_heads(y, algebra=self.algebra))


def window_mask(time: int, window: int, device: torch.device) -> BlockMask:
    """The mask of FlexAttention for a segment after a full memory: it computes the blocks within the window."""

    def within(_b: Tensor, _h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = query + window - key
        return (distance >= 0) & (distance <= window)

    return create_block_mask(within, None, None, time, window + time, device=str(device))


def flex(content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, mask: BlockMask) -> Tensor:
    """Relative attention within a window, computed by FlexAttention. It must be compiled."""
    past, reach = k.shape[2] - content.shape[2], r.shape[1]
    scores = position @ r.mT / math.sqrt(content.shape[-1])

    def add_position(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + scores[b, h, query, torch.clamp(query + past - key, 0, reach - 1)]

    y = flex_attention(content, k, v, score_mod=add_position, block_mask=mask)
    assert isinstance(y, Tensor)
    return y


def _case(algebra: Algebra, window: int, peer: str, recompute: bool, batch: int) -> Case:
    def segment(kernel: str) -> nn.Module:
        if kernel == "FlexAttention":
            return _Segment(_Flex(window, algebra, recompute), window)
        layer = ann.RelativeAttention(WIDTH, HEADS, algebra=algebra, recompute=recompute, kernel=kernel)
        return _Segment(layer, window)

    return Case(
        "attention",
        f"{batch} x {window}",
        algebra,
        WIDTH,
        lambda _: segment(peer),
        lambda lowering: segment("sdpa" if lowering == "reference" else "auto"),
        lambda width: torch.randn(batch, 2 * window, width),
        against=f"{peer}, recomputed" if recompute else peer,
        loop=False,
    )
