"""The choice that "auto" makes: every threshold by which it decides, one table for each kind of device.

Numbers come from `algebranets bench`; each names the rows of ``benchmarks/`` that it rests on. Nothing else in the
package decides by size or device which way a product takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.ops import device, gru_scan
from algebranets.ops.device import is_channels_last, next_power_of_2, precision, records_gradients
from algebranets.product.cells import Direction
from algebranets.product.compressed import TupleSparse
from algebranets.product.geometry import Geometry
from algebranets.product.layout import num_tuples

#: The dtypes that decoding kernels are made for.
_DECODED = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Gpu:
    """Thresholds on a GPU, measured on an H200."""

    #: Rows up to which `decode_linear` is faster than blocks, which must lay out rho(w) first.
    #: decode-h200.jsonl: C, H and M2C at 32 rows are 1.18 to 1.95 times as fast as torch.nn.
    decode_rows: int = 32
    #: The same for weights that are stored as the matrix that multiplies, where blocks lay out nothing: rows times
    #: copies on CUDA cores, and on tensor cores in half precision, up to so many multiplies.
    #: decode-h200.jsonl: M2R and M4R at 32 rows are 1.76 to 8.13 times as fast as torch.nn.
    decode_folded_rows: int = 4
    decode_folded_rows_half: int = 64
    decode_folded_multiplies: int = 1 << 28
    #: Rows up to which all gates of a recurrent cell are one kernel's work; for more, tensor cores take the products.
    #: Found by trials; no row stands for it.
    step_rows: int = 2
    #: Steps from which on a GRU's sequence is worth `gru_scan`. models-h200.jsonl: 512 steps of gru_lm's GRU over M2R
    #: are 2.9 times as fast as cuDNN's real GRU. The bound itself was found by trials.
    scan_steps: int = 16
    #: Multiply-adds that the device does while it moves one number, with tensor cores and without. Fewer multiplies pay
    #: where more than that is saved. linear-h200.jsonl: "compute" and "bandwidth" of all rows.
    multiplies_a_number_half: int = 180
    multiplies_a_number: int = 28
    #: Rows from which on the time of a large layer is that of its multiplies. lowerings-h200.jsonl:
    #: with 8192 rows, bilinear is ahead of blocks over C and H. The bound itself was found by trials.
    bilinear_rows: int = 1024
    #: The factor by which an algorithm of fewer multiplies may exceed the rounding error of the plain product, in half
    #: precision and without: as much as those of C and H do, and less than Strassen's. error-h200.jsonl: all rows.
    max_growth_half: float = 3.0
    max_growth: float = 1.5
    #: Terms of the table times taps, and strides, up to which a depthwise kernel is worth its compilation, since all of
    #: them are written out in it. depthwise-h200.jsonl: C, H and M2R, 3 x 3 taps, strides 1 and 2.
    depthwise_products: int = 1024
    depthwise_stride: int = 4
    #: Channels in all copies of a block below which copies are convolved at once, structural zeros and all.
    #: models-h200.jsonl: "500 x 24^2", the CIFAR-10 network over M2(R); twice as wide, zeros cost more.
    narrow_channels: int = 128
    #: Rows up to which tuples of a sparse weight may be picked, and up to which, in half precision, they are filled
    #: into tiles for tensor cores; beyond that a dense weight is laid out. sparse-h200.jsonl: 1, 8 and 64 rows.
    pick_rows: int = 32
    fill_rows: int = 256
    #: The cost of filling, fixed and for each place of the weight, if picking costs 1 for each tuple and row.
    #: sparse-h200.jsonl: M2R at widths 4096 and 8192.
    fill_cost: int = 2_500_000
    fill_cost_a_place: float = 0.6
    #: Bytes of an input row that a program can keep on the chip.
    pick_bytes: int = 1 << 17
    #: Features of a head of `window_attention`: tensor cores want sixteens, and more than these do not fit on the chip.
    head_unit: int = 16
    max_head: int = 256


@dataclass(frozen=True)
class Cpu:
    """Thresholds on a CPU."""

    #: Structural zeros for each output from which on they are skipped. Skipping saves multiplies and costs a copy of
    #: the output. zeros-cpu.jsonl: all rows; on an H200 it did not pay, but for CROSS at
    #: width 8193 (zeros-h200.jsonl).
    skipped_zeros: int = 192
    #: Rows times copies from which on torch's block-sparse product is faster than the one by numbers.
    #: sparse-cpu.jsonl: 1, 8 and 64 rows; in trials over C, H and M2(R) they are level between 8 and 64 rows.
    block_sparse_rows: int = 32
    #: Components up to which torch.compile is given whitening's sums of products, not matrix products. It is the same
    #: on a GPU. No row stands for it.
    written_out_components: int = 4


GPU, CPU = Gpu(), Cpu()

Way = Literal["blocks", "bilinear", "kernels"]
SparseWay = Literal["pick", "fill", "numbers", "blocks", "dense"]

# Layers ---------------------------------------------------------------------------------------------------------------


def linear(x: Tensor, weight: Tensor, algebra: Algebra, num_in: int, num_out: int) -> Way:
    """Few rows without gradients: a kernel. Many rows of many tuples: fewer multiplies. Otherwise blocks."""
    if not device.is_usable(x):
        return "blocks"
    if _decodes(x, weight, algebra):
        return "kernels"
    return "bilinear" if _saves_multiplies(x, algebra, num_in, num_out) else "blocks"


def conv(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> Way:
    """Depthwise convolutions: a kernel. Otherwise blocks."""
    return "kernels" if device.is_usable(x) and is_depthwise(x, weight, algebra, geometry) else "blocks"


def recurrent(
    mode: str, x: Tensor, directions: list[Direction], algebra: Algebra, batch_sizes: Tensor | None = None
) -> Way:
    """Long sequences of a GRU: a kernel. Single steps without gradients: another. Otherwise blocks."""
    if not device.is_usable(x):
        return "blocks"
    if is_gru_scan(mode, x, directions, algebra, batch_sizes):
        return "kernels"
    weights = [weight for direction in directions for weight in (direction.w_ih, direction.w_hh)]
    pays = is_single_step(x, directions, batch_sizes) and all(_decodes(x, weight, algebra) for weight in weights)
    return "kernels" if pays else "blocks"


def sparse(x: Tensor, w: TupleSparse) -> SparseWay:
    """How a tuple-sparse weight is multiplied.

    On a GPU without gradients, few rows "pick" the inputs of each tuple and more rows "fill" tuples into tiles. On a
    CPU with MKL, few rows go through a sparse matrix of "numbers" and more through one of "blocks". Otherwise the
    weight is laid out "dense".
    """
    if _has_sparse_kernels(x, w):
        return "pick" if _picks(x, w) else "fill"
    if _has_sparse_formats(x, w.values):
        rows = prod(x.shape[:-1]) * max(block.num_copies for block in w.algebra.blocks)
        return "blocks" if rows >= CPU.block_sparse_rows else "numbers"
    return "dense"


# Conditions of the kernels --------------------------------------------------------------------------------------------


def is_depthwise(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> bool:
    """Whether this is a depthwise convolution in two axes that there is a kernel for."""
    if geometry.num_axes != 2 or geometry.transposed or not x.is_floating_point():
        return False
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        return False
    products = len(algebra.terms) * weight.shape[2] * weight.shape[3]
    is_small = products <= GPU.depthwise_products and max(geometry.stride) <= GPU.depthwise_stride
    return is_small and num_tuples(weight, algebra) == (geometry.groups, 1)


def is_single_step(x: Tensor, directions: list[Direction], batch_sizes: Tensor | None = None) -> bool:
    """Whether this is one step in one direction, not packed and without a projection."""
    is_one = batch_sizes is None and x.dim() == 3 and x.shape[0] == 1
    return is_one and len(directions) == 1 and directions[0].w_hr is None


def is_gru_scan(
    mode: str, x: Tensor, directions: list[Direction], algebra: Algebra, batch_sizes: Tensor | None = None
) -> bool:
    """Whether this is a GRU over many steps in half precision, not packed, whose states fit on the chip."""
    is_gru = mode == "GRU" and batch_sizes is None and x.dim() == 3 and algebra.dim > 1
    if not is_gru or any(direction.w_hr is not None for direction in directions):
        return False
    # Lengths come last: a compiled graph that asks for one is made again for others.
    if precision(x).itemsize != 2 or x.shape[0] < GPU.scan_steps or x.shape[1] == 0:
        return False
    num_hidden = num_tuples(directions[0].w_hh, algebra)[1]
    shapes = [(x.shape[1] * block.num_copies, block.size * num_hidden) for block in algebra.blocks]
    return all(gru_scan.fits(num_rows, num_units, x.device) for num_rows, num_units in shapes)


def steps_at_once(x: Tensor) -> bool:
    """Whether all gates of a recurrent cell are one kernel's work for these rows, (batch, features)."""
    return len(x) <= GPU.step_rows


def takes_window_attention(query: Tensor, num_heads: int) -> bool:
    """Whether queries, (batch, time, features), go through `window_attention`: half precision, heads that fit."""
    size = query.shape[-1] // num_heads
    is_half = device.is_usable(query) and query.dtype.itemsize == 2
    return is_half and size % GPU.head_unit == 0 and size <= GPU.max_head


def takes_decode_kernels(x: Tensor) -> bool:
    """Whether what a token goes through besides linear layers is one launch each: inference, without autocast."""
    return device.is_usable(x) and not torch.is_grad_enabled() and not torch.is_autocast_enabled(x.device.type)


# Within blocks --------------------------------------------------------------------------------------------------------


def skips_zeros(x: Tensor, block: Block, num_summands: int) -> bool:
    """Whether the structural zeros of rho(w), for sums of ``num_summands``, are skipped."""
    return x.device.type == "cpu" and block.waste * num_summands >= CPU.skipped_zeros


def convolves_copies_at_once(x: Tensor, channels: int) -> bool:
    """Whether zeros are cheaper than what folding an image with its channels innermost costs: copies, thin matrices."""
    return x.is_cuda and is_channels_last(x) and channels < GPU.narrow_channels


def writes_out_whitening(dim: int) -> bool:
    """Whether a compiler is given whitening's sums of products over ``dim`` components, to make one pass of them."""
    return torch.compiler.is_compiling() and dim <= CPU.written_out_components


# ----------------------------------------------------------------------------------------------------------------------


def _decodes(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    """Whether `decode_linear` is the better way: inference on few rows by a weight smaller than a real one.

    Under autocast the weight must have its precision already, or casting would cost more than the product.
    """
    if algebra.dim == 1 or records_gradients(x, weight):
        return False
    if x.dtype != weight.dtype or x.dtype not in _DECODED or precision(x) != weight.dtype:
        return False
    rows = prod(x.shape[:-1])
    if not algebra.folded:
        return 0 < rows <= GPU.decode_rows
    copies = rows * algebra.blocks[0].num_copies
    fits = copies <= GPU.decode_folded_rows_half and copies * weight.numel() <= GPU.decode_folded_multiplies
    return copies > 0 and (copies <= GPU.decode_folded_rows or (x.dtype.itemsize == 2 and fits))


def _saves_multiplies(x: Tensor, algebra: Algebra, num_in: int, num_out: int) -> bool:
    """Whether an algorithm of fewer multiplies is faster than blocks, and exact enough."""
    dtype, algorithm = precision(x), algebra.bilinear
    if dtype == torch.float16 or prod(x.shape[:-1]) < GPU.bilinear_rows:  # in float16 sums of inputs may overflow
        return False
    is_half = dtype.itemsize == 2
    growth, most = (algorithm.half_growth, GPU.max_growth_half) if is_half else (algorithm.growth, GPU.max_growth)
    saved = (sum(block.num_copies * block.size**2 for block in algebra.blocks) - algorithm.rank) * num_in * num_out
    moved = (algebra.dim + algorithm.rank) * (num_in + num_out)
    on_tensor_cores = is_half or (dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32)
    least = GPU.multiplies_a_number_half if on_tensor_cores else GPU.multiplies_a_number
    return growth <= most and saved > least * moved


def _has_sparse_kernels(x: Tensor, w: TupleSparse) -> bool:
    return (
        device.is_usable(x)
        and 0 < prod(x.shape[:-1]) <= GPU.fill_rows
        and x.dtype in _DECODED
        and (x.dtype.itemsize == 2 or _picks(x, w))
        and precision(x) == w.values.dtype
        and not records_gradients(x)
    )


def _picks(x: Tensor, w: TupleSparse) -> bool:
    """Whether rows are few, fit onto the chip, and picking is not slower than filling tiles."""
    num_rows, (count, dim) = prod(x.shape[:-1]), w.values.shape
    fits = next_power_of_2(w.num_in) * dim * x.element_size() <= GPU.pick_bytes
    filling = GPU.fill_cost + GPU.fill_cost_a_place * w.num_in * w.num_out
    return num_rows <= GPU.pick_rows and fits and (x.element_size() > 2 or num_rows * count <= filling)


def _has_sparse_formats(x: Tensor, values: Tensor) -> bool:
    """Whether torch multiplies by sparse matrices fast where ``x`` is: MKL does, without gradients.

    Without MKL torch has no product by blocks at all, and the one by numbers is no faster than a dense weight.
    """
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and torch.backends.mkl.is_available()
        and x.dtype == values.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not records_gradients(x, values)
        and not device.is_transformed()
        and x.numel() > 0
    )
