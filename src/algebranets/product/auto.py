"""The rules of lowering "auto". No other file of the package chooses by size or device how a product is computed."""

from __future__ import annotations

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
from algebranets.product.thresholds import CPU, GPU

#: The dtypes that decoding kernels support.
_DECODED = (torch.bfloat16, torch.float16, torch.float32)


Way = Literal["blocks", "parts", "bilinear", "kernels"]
SparseWay = Literal["pick", "fill", "numbers", "blocks", "dense"]

# Layers ---------------------------------------------------------------------------------------------------------------


def linear(x: Tensor, weight: Tensor, algebra: Algebra, num_in: int, num_out: int) -> Way:
    """Choose "kernels" for few rows without gradients, "bilinear" for many rows of many tuples, else "parts"."""
    if device.is_usable(x):
        if _decodes(x, weight, algebra):
            return "kernels"
        if _saves_multiplies(x, algebra, num_in, num_out):
            return "bilinear"
    return "blocks" if algebra.change is None else "parts"


def conv(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> Way:
    """Choose "kernels" for depthwise convolutions, "parts" where changes of basis pay, else "blocks"."""
    if device.is_usable(x) and is_depthwise(x, weight, algebra, geometry):
        return "kernels"
    least = (GPU if device.is_usable(x) else CPU).conv_multiplies_a_number
    return "parts" if algebra.change is not None and _changes_pay(weight, algebra, geometry, least) else "blocks"


def recurrent(
    mode: str, x: Tensor, directions: list[Direction], algebra: Algebra, batch_sizes: Tensor | None = None
) -> Way:
    """Choose "kernels" for long sequences of a GRU and for single steps without gradients, else "blocks".

    On a CPU, choose "parts" for large layers over algebras that consist of matrix algebras.
    """
    if not device.is_usable(x):
        num_hidden = algebra.dim * num_tuples(directions[0].w_hh, algebra)[1]
        is_large = not x.is_cuda and num_hidden >= CPU.step_features
        return "parts" if algebra.change is not None and is_large else "blocks"
    if is_gru_scan(mode, x, directions, algebra, batch_sizes):
        return "kernels"
    weights = [weight for direction in directions for weight in (direction.w_ih, direction.w_hh)]
    pays = is_single_step(x, directions, batch_sizes) and all(_decodes(x, weight, algebra) for weight in weights)
    return "kernels" if pays else "blocks"


def sparse(x: Tensor, w: TupleSparse) -> SparseWay:
    """Choose how to multiply by a tuple-sparse weight.

    On a GPU without gradients, a kernel picks the inputs of each tuple for few rows ("pick") and fills tuples into
    tiles for more rows ("fill"). On a CPU with MKL, the weight becomes a sparse matrix of numbers for few rows
    ("numbers") and of blocks for more rows ("blocks"). Otherwise the dense weight is used ("dense"), and also if it is
    kept and faster, and for inputs in another basis than that of the weight.
    """
    if w.algebra.change is not None:
        return "dense"
    if _has_sparse_kernels(x, w):
        if _dense_is_faster(x, w):
            return "dense"
        return "pick" if _picks(x, w) else "fill"
    if _has_sparse_formats(x, w.values):
        if w.dense is not None and w.algebra.folded and not _is_very_sparse(w):
            return "dense"
        rows = prod(x.shape[:-1]) * max(block.num_copies for block in w.algebra.stored.blocks)
        return "blocks" if rows >= CPU.block_sparse_rows else "numbers"
    return "dense"


# Conditions of the kernels --------------------------------------------------------------------------------------------


def is_depthwise(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> bool:
    """Whether this is a depthwise convolution in two axes that the kernel supports."""
    if geometry.num_axes != 2 or geometry.transposed or not x.is_floating_point():
        return False
    if x.dtype != weight.dtype and not device.is_autocast(x):
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
    # Check lengths last: a compiled graph that depends on a length is compiled again for other lengths.
    if precision(x).itemsize != 2 or x.shape[0] < GPU.scan_steps or x.shape[1] == 0:
        return False
    num_hidden = num_tuples(directions[0].w_hh, algebra)[1]
    shapes = [(x.shape[1] * block.num_copies, block.size * num_hidden) for block in algebra.blocks]
    return all(gru_scan.fits(num_rows, num_units, x.device) for num_rows, num_units in shapes)


def steps_at_once(x: Tensor, algebra: Algebra) -> bool:
    """Whether one kernel computes all gates of a recurrent cell for these rows, (batch, features).

    The kernel needs weights in the basis of the table.
    """
    return algebra.change is None and len(x) <= GPU.step_rows


def takes_window_attention(query: Tensor, num_heads: int) -> bool:
    """Whether `window_attention` takes these queries, (batch, time, features): half precision, heads that fit."""
    size = query.shape[-1] // num_heads
    is_half = device.is_usable(query) and query.dtype.itemsize == 2
    return is_half and size % GPU.head_unit == 0 and size <= GPU.max_head


def decodes_int8(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, lowering: str) -> bool:
    """Whether `decode_linear` reads an int8 weight: on a GPU, for few rows without gradients, over R too.

    With lowering "kernels", it does so for any number of rows.
    """
    if not device.is_usable(x) or records_gradients(x, bias):
        return False
    if precision(x) not in _DECODED or not (bias is None or device.is_autocast(x) or bias.dtype == x.dtype):
        return False
    return lowering == "kernels" or _are_few(x, weight, algebra)


def changes_in_registers(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    """Whether `decode_linear` changes the basis itself, for an algebra that is stored in another one.

    Otherwise passes before and after it do. In float16 their results could overflow.
    """
    return device.sums_may_overflow(x) or _changes_little(x, weight, algebra)


def takes_decode_kernels(x: Tensor) -> bool:
    """Whether norms and attention use decoding kernels: on a GPU, with gradients disabled and without autocast."""
    return device.is_usable(x) and not torch.is_grad_enabled() and not device.is_autocast(x)


# Within blocks --------------------------------------------------------------------------------------------------------


def skips_zeros(x: Tensor, block: Block, num_summands: int) -> bool:
    """Whether to skip the structural zeros of rho(w). With them, an output is a sum of ``num_summands`` products."""
    return x.device.type == "cpu" and block.waste * num_summands >= CPU.skipped_zeros


def convolves_copies_at_once(x: Tensor, num_copies: int, channels: int) -> bool:
    """Whether to compute the copies in a channels_last image, which has ``channels`` in all, with one convolution.

    Such a convolution multiplies zeros. Without it, a convolution has few channels, which is slow.
    """
    return _is_gpu_image(x) and channels < GPU.narrow_channels and num_copies <= GPU.copies_at_once


def lengthens_rows(x: Tensor, geometry: Geometry) -> bool:
    """Whether to convolve the copies in a channels_last image as more pixels in each row, which copies nothing."""
    is_plain = geometry.groups == 1 and geometry.stride[-1] == 1 and not isinstance(geometry.padding, str)
    return _is_gpu_image(x) and is_plain


def missing_channels(x: Tensor) -> int:
    """The number of channels of zeros to add to a channels_last image before a convolution."""
    return -x.shape[1] % GPU.channel_unit if _is_gpu_image(x) and precision(x).itemsize == 2 else 0


def pairs_pixels(x: Tensor, weight: Tensor, geometry: Geometry) -> bool:
    """Whether to convolve pairs of neighboring pixels as one pixel with twice as many channels.

    This makes the gradient of the weight faster. torch.compile builds the larger weight in one kernel. Without it, many
    small kernels would be needed. The convolution must keep the length of rows.
    """
    if not torch.compiler.is_compiling() or not records_gradients(weight) or precision(x).itemsize != 2:
        return False
    reach = geometry.padding[-1]
    is_dense = geometry.stride[-1] == 1 and geometry.dilation[-1] == 1 and x.shape[-1] % 2 == 0
    keeps_length = isinstance(reach, int) and reach > 0 and weight.shape[-1] == 2 * reach + 1
    return _is_gpu_image(x) and is_dense and keeps_length and max(weight.shape[:2]) <= GPU.paired_channels


def writes_out_whitening(dim: int) -> bool:
    """Whether whitening of ``dim`` components is written as sums of products, which a compiler fuses into one pass."""
    return torch.compiler.is_compiling() and dim <= CPU.written_out_components


# ----------------------------------------------------------------------------------------------------------------------


def _is_gpu_image(x: Tensor) -> bool:
    return x.is_cuda and is_channels_last(x)


def _decodes(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    """Whether `decode_linear` is faster than blocks: few rows without gradients, over an algebra other than R.

    Under autocast the weight must already have autocast's dtype, because casting it would cost more than the product.
    """
    if algebra.dim == 1 or records_gradients(x, weight):
        return False
    if x.dtype != weight.dtype or x.dtype not in _DECODED or precision(x) != weight.dtype:
        return False
    return _are_few(x, weight, algebra)


def _are_few(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    """Whether the rows of ``x`` are few enough for `decode_linear` to be faster than blocks."""
    rows, is_half, stored = prod(x.shape[:-1]), precision(x).itemsize == 2, algebra.stored
    if not 0 < rows <= (GPU.decode_rows_half if is_half else GPU.decode_rows):
        return False
    if algebra.change is not None:
        if _changes_little(x, weight, algebra):
            return True
        if device.sums_may_overflow(x):  # in passes
            return False
    if not stored.folded:
        return _decodes_dim(stored, rows, is_half)
    copies = rows * stored.blocks[0].num_copies
    if not is_half:
        return copies <= GPU.decode_folded_rows
    return copies <= GPU.decode_folded_rows_half or copies * weight.numel() <= GPU.decode_folded_multiplies


def _changes_little(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    """Whether there is so little work that changes of basis in registers are faster than passes of their own."""
    rows = prod(x.shape[:-1])
    if rows == 1:
        return algebra.dim <= GPU.decode_dim_one_row
    return algebra.dim <= GPU.decode_dim and rows * algebra.dim**2 * weight.numel() <= GPU.changed_work


def _changes_pay(weight: Tensor, algebra: Algebra, geometry: Geometry, least: int) -> bool:
    """Whether a convolution in the basis of `Algebra.stored` saves ``least`` multiplies for each number it moves."""
    first, second = num_tuples(weight, algebra)
    saved = (algebra.multiplies_by_blocks - algebra.stored.multiplies_by_blocks) * first * second
    return saved * prod(weight.shape[2:]) > least * 2 * algebra.dim * (first + second * geometry.groups)


def _decodes_dim(algebra: Algebra, num_rows: int, is_half: bool) -> bool:
    """Whether an algebra has few enough components for `decode_linear` to multiply by its table."""
    if is_half and max(block.size for block in algebra.blocks) <= GPU.decode_size:
        return algebra.dim <= GPU.decode_dim_half
    return algebra.dim <= (GPU.decode_dim_one_row if num_rows == 1 else GPU.decode_dim)


def _saves_multiplies(x: Tensor, algebra: Algebra, num_in: int, num_out: int) -> bool:
    """Whether an algorithm with fewer multiplies is faster than blocks, and accurate enough."""
    dtype, algorithm = precision(x), algebra.bilinear
    if device.sums_may_overflow(x) or prod(x.shape[:-1]) < GPU.bilinear_rows:
        return False
    is_half = dtype.itemsize == 2
    growth, most = (algorithm.half_growth, GPU.max_growth_half) if is_half else (algorithm.growth, GPU.max_growth)
    saved = (algebra.stored.multiplies_by_blocks - algorithm.rank) * num_in * num_out
    moved = (algebra.dim + algorithm.rank) * (num_in + num_out)
    if algebra.change is not None:  # changes of basis move this much
        moved -= 2 * algebra.dim * (num_in + num_out)
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
    """Whether rows are few and fit on the chip, and picking is not slower than filling tiles."""
    num_rows, (count, dim) = prod(x.shape[:-1]), w.values.shape
    fits = next_power_of_2(w.num_in) * dim * x.element_size() <= GPU.pick_bytes
    filling = GPU.fill_cost + GPU.fill_cost_a_place * w.num_in * w.num_out
    return num_rows <= GPU.pick_rows and fits and (x.element_size() > 2 or num_rows * count <= filling)


def _dense_is_faster(x: Tensor, w: TupleSparse) -> bool:
    """Whether the dense weight is kept, and multiplying by it is faster than picking or filling.

    Where the matrix of a dense weight must be built in each call, filling is faster.
    """
    if w.dense is None or x.element_size() > 2:
        return False
    rows, way = prod(x.shape[:-1]), linear(x, w.dense, w.algebra, w.num_in, w.num_out)
    cost = GPU.dense_cost + GPU.dense_cost_a_place * w.num_in * w.num_out
    return rows * len(w.values) > cost and (way == "kernels" or w.algebra.folded)


def _is_very_sparse(w: TupleSparse) -> bool:
    """Whether a CPU multiplies a weight faster in torch's sparse formats than a dense one that is kept."""
    places = w.num_in * w.num_out
    return places >= CPU.sparse_places and len(w.values) <= CPU.sparse_share * places


def _has_sparse_formats(x: Tensor, values: Tensor) -> bool:
    """Whether torch's sparse formats are fast on the device of ``x``: on a CPU with MKL, without gradients.

    Without MKL torch has no product in BSR format, and its product in CSR format is not faster than a dense one.
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
