"""Whitening: batch norm that also makes a tuple's components uncorrelated, as in Trabelsi et al. (2018).

The paper finds torch's own batch norm as good and 1.9 times as fast; this is the alternative it compares with. Inside,
an image is (batch, component, tuple, place).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra

#: Inputs beyond this are scaled before they are squared, so that a float32 holds their covariance.
LARGE = 2.0**32

#: Up to so many components, torch.compile is given sums of products, not matrix products.
FEW = 4


class Centred(NamedTuple):
    """Tuples of images, times ``scale``, less ``centre``; and the images, to compute them from again."""

    values: Float[Tensor, "batch comp chan place"]
    images: Float[Tensor, "batch feat *size"]
    scale: Float[Tensor, " chan"]
    #: The mean. In a compiled graph no gradient goes through it: that of the covariance has none there, and that of the
    #: output goes through centre - mean, which saves a pass over the batch.
    centre: Float[Tensor, "comp chan"]


class Statistics(NamedTuple):
    """Mean and covariance of tuples that were scaled first."""

    mean: Float[Tensor, "comp chan"]
    covariance: Float[Tensor, "comp comp chan"]
    #: What is added to each variance.
    eps: Float[Tensor, " chan"]


class _Whitening(nn.Module):
    num_dims: ClassVar[tuple[int, ...]]
    running_mean: Tensor | None
    running_covariance: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str,
        sync: bool = True,
    ) -> None:
        super().__init__()
        self.algebra = algebras.get(algebra)
        checks.positive("eps", eps)
        if momentum is not None:
            checks.share("momentum", momentum)
        self.num_features, self.eps, self.momentum, self.sync = num_features, eps, momentum, sync
        self.affine, self.track_running_stats = affine, track_running_stats
        channels, dim = product.whole_tuples(num_features, self.algebra, "num_features"), self.algebra.dim
        factory = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(channels, dim, dim, **factory)) if affine else None  # type: ignore[arg-type]
        self.bias = nn.Parameter(torch.empty(num_features, **factory)) if affine else None  # type: ignore[arg-type]
        kept = _at_least_float32(dtype or torch.get_default_dtype())
        empty = {
            "running_mean": torch.empty(num_features, device=device, dtype=kept),
            "running_covariance": torch.empty(channels, dim, dim, device=device, dtype=kept),
            "num_batches_tracked": torch.empty((), device=device, dtype=torch.long),
        }
        for name, buffer in empty.items():
            self.register_buffer(name, buffer if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean zero and covariance one, as before the first batch."""
        if (
            self.running_mean is not None
            and self.running_covariance is not None
            and self.num_batches_tracked is not None
        ):
            self.running_mean.zero_()
            self.running_covariance.copy_(torch.eye(self.algebra.dim))
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            with torch.no_grad():
                self.weight.copy_(torch.eye(self.algebra.dim))
                self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() not in self.num_dims or x.shape[1] != self.num_features:
            dims = " or ".join(map(str, self.num_dims))
            raise ValueError(
                f"the input must have {dims} axes with {self.num_features} channels on axis 1; got {tuple(x.shape)}."
            )
        if x.is_meta:  # it knows no autocast
            return self._forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return self._forward(x)

    def _forward(self, x: Tensor) -> Tensor:
        measure = self._of_batch if self.training or self.running_mean is None else self._of_running
        t, stats = measure(x)
        dtype = t.values.dtype
        weight = torch.eye(self.algebra.dim, dtype=dtype, device=x.device)[:, :, None].expand_as(stats.covariance)
        if self.weight is not None:
            weight = self.weight.to(dtype).permute(1, 2, 0)
        matrix = divided(weight, cholesky(stats.covariance, stats.eps))
        offset = (matrix * (t.centre - stats.mean)).sum(1)
        if self.bias is not None:
            offset = offset + self.bias.to(dtype).unflatten(0, (self.algebra.dim, -1))
        return affine(matrix, offset, t)

    def _of_batch(self, x: Float[Tensor, "batch feat *size"]) -> tuple[Centred, Statistics]:
        """The batch, centred, and its statistics, over all ranks; keeps the running ones up to date."""
        share = self.sync and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        add: Callable[[Tensor], Tensor] = sum_over_ranks if share else lambda total: total
        t = _planes(x, self.algebra.dim)
        largest = t.detach().abs().amax((0, 3)).amax(0) if t.numel() else t.new_zeros(t.shape[2])
        if share:
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        scale = _scale(largest)
        # as_tensor: while torch.jit.trace runs, sizes are tensors, and a number made of one would be a constant.
        total = add(torch.as_tensor(t.shape[0] * t.shape[3], dtype=t.dtype, device=t.device))
        count = total.clamp(min=1)
        mean = add((t / count).sum((0, 3))) * scale
        centred = centred_by(x, scale, mean.detach() if _fuses(self.algebra.dim) else mean)
        covariance = add(products(centred)) / count
        # Variance below the rounding of the numbers themselves is none.
        noise = (4 * torch.finfo(t.dtype).eps * largest * scale).square()
        if self.running_mean is not None:
            self._update(mean.detach(), covariance.detach(), scale, total.detach())
        return centred, Statistics(mean, covariance, self.eps * scale.square() + noise)

    def _of_running(self, x: Float[Tensor, "batch feat *size"]) -> tuple[Centred, Statistics]:
        """The batch, centred by the running statistics, and these."""
        assert self.running_mean is not None
        assert self.running_covariance is not None
        dtype = _at_least_float32(x.dtype)
        covariance = self.running_covariance.to(dtype).permute(1, 2, 0)
        largest = covariance.diagonal().amax(1).sqrt()
        scale = _scale(largest)
        mean = self.running_mean.to(dtype).unflatten(0, (self.algebra.dim, -1)) * scale
        covariance = covariance * scale * scale
        eps = self.eps * scale.square() + torch.finfo(dtype).tiny
        return centred_by(x, scale, mean), Statistics(mean, covariance, eps)

    @torch.no_grad()
    def _update(self, mean: Tensor, covariance: Tensor, scale: Tensor, count: Tensor) -> None:
        """Move the running statistics towards the batch's; the covariance unbiased, as torch's batch norm has it.

        An empty batch changes neither, and a batch of one tuple, which has no unbiased covariance, only the mean.
        """
        assert self.running_mean is not None
        assert self.running_covariance is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        kept = self.running_covariance.dtype
        unbiased = covariance.to(kept) * (count / (count - 1).clamp(min=1)).to(kept)
        # Where a number cannot hold the covariance, all of a tuple's shrinks alike, so that it stays a covariance.
        variance = unbiased.diagonal().amax(1).clamp(min=torch.finfo(kept).tiny)
        size = torch.minimum(1 / scale.to(kept), (torch.finfo(kept).max / 4) ** 0.5 / variance.sqrt())
        self.running_mean.lerp_((mean.to(kept) / scale.to(kept)).flatten(), (count > 0).to(kept) * share)
        self.running_covariance.lerp_((unbiased * size * size).permute(2, 0, 1), (count > 1).to(kept) * share)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _Whitening:
        """Move as every module does, but keep the statistics in float32 or better when weights become half."""
        before = {name: self._buffers.get(name) for name in ("running_mean", "running_covariance")}
        super()._apply(fn, recurse)
        for name, kept in before.items():
            now = self._buffers.get(name)
            if kept is not None and now is not None and now.dtype.itemsize < 4:
                self._buffers[name] = kept.to(now.device)
        return self

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, algebra={self.algebra.name}"
        )


class Whitening1d(_Whitening):
    """`torch.nn.BatchNorm1d` that whitens tuples, for (batch, features) or (batch, channels, length)."""

    num_dims = (2, 3)


class Whitening2d(_Whitening):
    """`torch.nn.BatchNorm2d` that whitens tuples: mean zero, each tuple's covariance the identity, then an affine map.

    ``weight`` is a matrix for each tuple, (tuples, components, components), components in `Algebra.order`. In training
    statistics are taken over all ranks where torch.distributed runs with several; ``sync=False`` keeps to one's own.

    >>> import torch, algebranets as an
    >>> an.nn.Whitening2d(64, algebra=an.H)(torch.randn(8, 64, 5, 5)).shape
    torch.Size([8, 64, 5, 5])
    """

    num_dims = (4,)


class Whitening3d(_Whitening):
    """`torch.nn.BatchNorm3d` that whitens tuples."""

    num_dims = (5,)


def cholesky(covariance: Float[Tensor, "comp comp chan"], eps: Float[Tensor, " chan"]) -> list[Tensor]:
    """The lower triangle L with L L^T = covariance + eps, finite and invertible whatever was rounded before.

    Row i of L splits the variance of component i into what it shares with each component before it and a rest, its
    pivot. Shares are held to what the component still has, less a floor of its own rounding, so no pivot vanishes.
    Its columns are given from the diagonal on, (A - j, tuples): entries above are none.
    """
    dim = len(covariance)
    variance = covariance.diagonal().mT + eps
    floor = (8 * dim * torch.finfo(covariance.dtype).eps * variance).detach()
    left = variance
    columns: list[Tensor] = []
    for j in range(dim):
        shared = covariance[j + 1 :, j]
        for k, column in enumerate(columns):
            shared = shared - column[j + 1 - k :] * column[j - k]
        pivot, left = left[:1].sqrt(), left[1:]
        most = (left.detach() - floor[j + 1 :]).clamp(min=0).sqrt()
        below = (shared / pivot).clamp(-most, most)
        left = torch.maximum(left - below.square(), floor[j + 1 :])
        columns.append(torch.cat([pivot, below]))
    return columns


def divided(matrix: Float[Tensor, "row comp chan"], lower: list[Tensor]) -> Float[Tensor, "row comp chan"]:
    """``matrix`` times the inverse of a lower triangle, by substitution from its last column."""
    columns: list[Tensor] = []
    for j in reversed(range(len(lower))):
        column = matrix[:, j]
        for k, later in enumerate(columns):
            column = column - later * lower[j][k + 1]
        columns.insert(0, column / lower[j][0])
    return torch.stack(columns, 1)


def centred_by(
    x: Float[Tensor, "batch feat *size"], scale: Float[Tensor, " chan"], centre: Float[Tensor, "comp chan"]
) -> Centred:
    """The tuples of ``x`` times ``scale``, less ``centre``."""
    return Centred(_centred(x, scale, centre), x, scale, centre)


def products(t: Centred) -> Float[Tensor, "comp comp chan"]:
    """The products of each two components, summed over batch and places."""
    if _fuses(len(t.centre)):
        return _Products.apply(t.images, t.scale, t.centre)
    return torch.einsum("nicp,njcp->ijc", t.values, t.values)


def affine(
    matrix: Float[Tensor, "row comp chan"], offset: Float[Tensor, "row chan"], t: Centred
) -> Float[Tensor, "batch feat *size"]:
    """Every tuple of ``t`` times the matrix of its channel, and the offset, as images again."""
    if _fuses(len(t.centre)):
        return _Affine.apply(matrix, offset, t.images, t.scale, t.centre)
    return _images(torch.einsum("ijc,njcp->nicp", matrix, t.values) + offset[:, :, None], t.images)


def _scale(largest: Float[Tensor, " chan"]) -> Float[Tensor, " chan"]:
    """What numbers up to ``largest`` are multiplied by: mostly 1."""
    most = 1 / torch.finfo(largest.dtype).tiny  # of which the inverse is a normal number
    return 1 / torch.where(largest > LARGE, largest.clamp(max=most), 1)


def _planes(x: Tensor, dim: int) -> Float[Tensor, "batch comp chan place"]:
    """Images as they are computed with: by components, ``dim`` of them, in float32 or better."""
    return x.to(_at_least_float32(x.dtype)).reshape(x.shape[0], dim, x.shape[1] // dim, prod(x.shape[2:]))


def _images(t: Float[Tensor, "batch comp chan place"], x: Tensor) -> Tensor:
    """`_planes`, backwards: with the shape, numbers and memory format of ``x``."""
    return product.in_format_of(x, t.to(x.dtype).reshape(x.shape))


def _centred(x: Tensor, scale: Tensor, centre: Tensor) -> Float[Tensor, "batch comp chan place"]:
    return _planes(x, len(centre)) * scale[:, None] - centre[:, :, None]


# The same for a compiler, which makes one pass over the batch of each of these, forward and backward ------------------


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, centre: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale, centre)
        return _sums(None, x, scale, centre)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, scale, centre = ctx.saved_tensors
        # Centred, but not in the words of forward: the same would be kept from there, a float32 for each number of x.
        t = scale[:, None] * _planes(x, len(centre)) - centre[:, :, None]
        return _images(_times(_stored(grad + grad.transpose(0, 1)), t) * scale[:, None], x), None, None


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, offset: Tensor, x: Tensor, scale: Tensor, centre: Tensor) -> Tensor:
        matrix = _stored(matrix)
        ctx.save_for_backward(matrix, x, scale, centre)
        return _images(_times(matrix, _centred(x, scale, centre)) + offset[:, :, None], x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        matrix, x, scale, centre = ctx.saved_tensors
        grad = product.in_format_of(x, grad)
        t = _planes(grad, len(centre))
        of_images = _images(_times(matrix.transpose(0, 1), t) * scale[:, None], x)
        return _sums(grad, x, scale, centre), t.sum((0, 3)), of_images, None, None


def _times(matrix: Tensor, t: Tensor) -> Tensor:
    """Sums so short that a compiler writes them out."""
    return (matrix[:, :, :, None] * t[:, None]).sum(2)


def _stored(matrix: Tensor) -> Tensor:
    """The same as a view of memory, or a compiler computes it, from what it comes of, for each place of an image."""
    matrix = matrix.contiguous()
    return matrix.as_strided(matrix.shape, matrix.stride())


def _sums(left: Tensor | None, x: Tensor, scale: Tensor, centre: Tensor) -> Tensor:
    """Products of each component of ``left`` (None: of the centred tuples) and each of the centred tuples, summed."""
    if x.is_cuda:  # where inductor's kernel for what is below is slow
        return _sums_on_gpu(left, x, scale, centre)
    t = _centred(x, scale, centre)
    left = t if left is None else _planes(left, len(centre))
    return (left[:, :, None] * t[:, None]).sum((0, 4))


@torch.library.custom_op(
    "algebranets::sums_of_products",
    mutates_args=(),
    schema="(Tensor? left, Tensor x, Tensor scale, Tensor centre) -> Tensor",
)
def _sums_on_gpu(left: Tensor | None, x: Tensor, scale: Tensor, centre: Tensor) -> Tensor:
    from algebranets.nn.jit import whitening as jit  # needs triton

    return jit.sums_of_products(left, x, scale, centre)


@_sums_on_gpu.register_fake
def _(_left: Tensor | None, _x: Tensor, _scale: Tensor, centre: Tensor) -> Tensor:
    dim, channels = centre.shape
    return centre.new_empty(dim, dim, channels)


def _fuses(dim: int) -> bool:
    """Whether there is a compiler that makes one pass of sums of products; a matrix product would want a copy."""
    return torch.compiler.is_compiling() and dim <= FEW


def sum_over_ranks(mine: Tensor) -> Tensor:
    """The sum of what each rank has, on every rank; gradients flow back to all of them."""
    from torch.distributed.nn.functional import all_reduce  # not in every build of torch

    return all_reduce(mine)


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.itemsize >= 4 else torch.float32
