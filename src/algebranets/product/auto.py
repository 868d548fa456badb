"""The rules of lowering "auto": every threshold, in one table for each kind of device.

Thresholds were measured with `algebranets bench` or found by trials. Comments name the rows of ``benchmarks/`` that
support them. No other file of the package chooses by size or device how a product is computed.
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

#: The dtypes that decoding kernels support.
_DECODED = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Gpu:
    """Thresholds on a GPU, measured on an H200."""

    #: The largest number of rows for which `decode_linear` is faster than blocks, which must build rho(w) first.
    #: decode-h200.jsonl: C, H and M2C at 32 rows are 1.18 to 1.95 times as fast as torch.nn.
    decode_rows: int = 32
    #: The largest number of rows times copies for which `decode_linear` is faster than blocks over a folded algebra,
    #: where blocks build nothing. The first bound is for CUDA cores. The second is for tensor cores in half precision,
    #: where the number of multiplies is bounded too.
    #: decode-h200.jsonl: M2R and M4R at 32 rows are 1.76 to 8.13 times as fast as torch.nn.
    decode_folded_rows: int = 4
    decode_folded_rows_half: int = 64
    decode_folded_multiplies: int = 1 << 28
    #: The largest number of components for which `decode_linear` is faster than blocks, for several rows and for one,
    #: unless weights are folded. Found by trials at width 8192: over M2H, with one row `decode_linear` was four times
    #: as fast as blocks, but slower than torch.nn with 8 rows. With 32 components, blocks were always faster.
    decode_dim: int = 8
    decode_dim_one_row: int = 16
    #: The largest number of rows for which `decode_linear` changes the basis in registers if weights are folded. For
    #: more rows, changes of basis are passes of their own. Found by trials over clifford(2,0) at width 8192;
    #: parts-h200.jsonl has 8 rows, where registers are used, and 32.
    changed_rows: int = 16
    #: For each number that changes of basis move, a convolution must save this many multiplies to be faster in another
    #: basis. Found by trials over clifford(2,0) and clifford(3,0): 256 channels save 288, and blocks were faster; 512
    #: channels save 576, and blocks were slower. parts-h200.jsonl: conv2d.
    conv_multiplies_a_number: int = 400
    #: The largest number of rows for which one kernel computes all gates of a recurrent cell. For more rows, tensor
    #: cores compute the products. Found by trials; no benchmark row supports it.
    step_rows: int = 2
    #: The smallest number of steps for which a GRU uses `gru_scan`. models-h200.jsonl: 512 steps of gru_lm's GRU over
    #: M2R are 2.9 times as fast as cuDNN's real GRU. The bound itself was found by trials.
    scan_steps: int = 16
    #: The number of multiply-adds that the device does while it moves one number, with and without tensor cores. An
    #: algorithm with fewer multiplies pays if it saves more than this for each number that it moves.
    #: linear-h200.jsonl: "compute" and "bandwidth" of all rows, for tensor cores. No row supports the other number.
    multiplies_a_number_half: int = 180
    multiplies_a_number: int = 28
    #: The smallest number of rows for which multiplies dominate the time of a large layer. lowerings-h200.jsonl:
    #: with 8192 rows, bilinear is faster than blocks over C and H. The bound itself was found by trials.
    bilinear_rows: int = 1024
    #: The largest growth of the rounding error that an algorithm with fewer multiplies may have, in half precision
    #: (`Bilinear.half_growth`) and otherwise (`Bilinear.growth`). The bounds allow the algorithms for C and H, but not
    #: Strassen's. error-h200.jsonl: all rows.
    max_growth_half: float = 3.0
    max_growth: float = 1.5
    #: The largest number of table terms times taps, and the largest stride, for which a depthwise kernel is worth its
    #: compilation. All of them are unrolled in the kernel. depthwise-h200.jsonl: C, H and M2R, 3 x 3 taps, strides 1
    #: and 2.
    depthwise_products: int = 1024
    depthwise_stride: int = 4
    #: With fewer channels than the first in all copies of a block, and no more copies than the second, one convolution
    #: computes all copies. It multiplies structural zeros. conv2d-h200.jsonl: M2R with 64 channels, where one
    #: convolution computes all copies, and with 128. The second bound limits the zeros. No benchmark row supports it.
    narrow_channels: int = 128
    copies_at_once: int = 4
    #: The largest number of channels for which a compiled convolution takes pairs of pixels as one pixel. Its weight is
    #: larger, but the gradient of the weight takes half the time. Found by trials: with 64 channels it was slower.
    #: models-h200.jsonl: "500 x 24^2", the CIFAR-10 network over M2(R).
    paired_channels: int = 32
    #: In half precision, the number of channels of an image is filled up to a multiple of this, which tensor cores
    #: need. Found by trials: a convolution from 16 channels to 64 was faster than one from 12 to 64.
    channel_unit: int = 8
    #: The largest number of rows for which the inputs of each tuple of a sparse weight may be picked, and the largest
    #: for which, in half precision, tuples are filled into tiles for tensor cores. For more rows the weight is expanded
    #: to a dense one. sparse-h200.jsonl: 1, 8 and 64 rows.
    pick_rows: int = 32
    fill_rows: int = 256
    #: The cost of filling: a fixed part, and a part for each place of the weight. The unit is the cost of picking one
    #: tuple for one row. sparse-h200.jsonl: M2R at widths 4096 and 8192.
    fill_cost: int = 2_500_000
    fill_cost_a_place: float = 0.6
    #: The largest input row, in bytes, that a program can keep on the chip.
    pick_bytes: int = 1 << 17
    #: Bounds on the features of a head of `window_attention`. Tensor cores need a multiple of the first, and larger
    #: heads than the second do not fit on the chip.
    head_unit: int = 16
    max_head: int = 256


@dataclass(frozen=True)
class Cpu:
    """Thresholds on a CPU."""

    #: The smallest number of structural zeros for each output at which they are skipped. Skipping saves multiplies and
    #: costs a copy of the output. zeros-cpu.jsonl: all rows. On an H200 skipping did not pay, except for CROSS at width
    #: 8193 (zeros-h200.jsonl).
    skipped_zeros: int = 192
    #: The smallest number of rows times copies for which torch's product in BSR format, by blocks, is faster than its
    #: product in CSR format, by single numbers. sparse-cpu.jsonl: 1, 8 and 64 rows. In trials over C, H and M2(R) the
    #: two were equally fast between 8 and 64 rows.
    block_sparse_rows: int = 32
    #: Like `Gpu.conv_multiplies_a_number`. Found by trials: depthwise convolutions, which save few multiplies, were
    #: slower in another basis. From 64 channels on, dense 3 x 3 convolutions were faster. parts-cpu.jsonl: conv2d.
    conv_multiplies_a_number: int = 40
    #: The smallest number of hidden features for which a recurrent layer that changes the basis in each step is faster
    #: than torch's kernel. parts-cpu.jsonl: gru. In trials over clifford(2,0), 512 features were faster and 256 slower.
    step_features: int = 512
    #: The largest number of components for which whitening is written for torch.compile as sums of products, not as
    #: matrix products. The bound also applies on a GPU. No benchmark row supports it.
    written_out_components: int = 4


GPU, CPU = Gpu(), Cpu()

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
    ("numbers") and of blocks for more rows ("blocks"). Otherwise it is expanded to a dense weight ("dense").
    """
    if _has_sparse_kernels(x, w):
        return "pick" if _picks(x, w) else "fill"
    if _has_sparse_formats(x, w.values):
        rows = prod(x.shape[:-1]) * max(block.num_copies for block in w.algebra.stored.blocks)
        return "blocks" if rows >= CPU.block_sparse_rows else "numbers"
    return "dense"


# Conditions of the kernels --------------------------------------------------------------------------------------------


def is_depthwise(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> bool:
    """Whether this is a depthwise convolution in two axes that the kernel supports."""
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
    dtype, rows = precision(x), prod(x.shape[:-1])
    is_cast = torch.is_autocast_enabled(x.device.type)
    if dtype not in _DECODED or not (bias is None or is_cast or bias.dtype == x.dtype):
        return False
    if algebra.change is not None and not changes_in_registers(algebra, rows):
        return False
    return lowering == "kernels" or _are_few(rows, weight, algebra, dtype.itemsize)


def changes_in_registers(algebra: Algebra, num_rows: int) -> bool:
    """Whether `decode_linear` changes the basis of inputs and outputs, for an algebra that is stored in another one."""
    return _decodes_dim(algebra, num_rows) and (not algebra.stored.folded or num_rows <= GPU.changed_rows)


def takes_decode_kernels(x: Tensor) -> bool:
    """Whether norms and attention use decoding kernels: on a GPU, with gradients disabled and without autocast."""
    return device.is_usable(x) and not torch.is_grad_enabled() and not torch.is_autocast_enabled(x.device.type)


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
    return _are_few(prod(x.shape[:-1]), weight, algebra, x.dtype.itemsize)


def _are_few(rows: int, weight: Tensor, algebra: Algebra, itemsize: int) -> bool:
    """Whether rows with numbers of ``itemsize`` bytes are few enough for `decode_linear` to be faster than blocks."""
    if not algebra.stored.folded or (algebra.change is not None and changes_in_registers(algebra, rows)):
        return 0 < rows <= GPU.decode_rows and _decodes_dim(algebra, rows)
    copies = rows * algebra.stored.blocks[0].num_copies
    fits = copies <= GPU.decode_folded_rows_half and copies * weight.numel() <= GPU.decode_folded_multiplies
    return copies > 0 and (copies <= GPU.decode_folded_rows or (itemsize == 2 and fits))


def _changes_pay(weight: Tensor, algebra: Algebra, geometry: Geometry, least: int) -> bool:
    """Whether a convolution in the basis of `Algebra.stored` saves ``least`` multiplies for each number it moves."""
    first, second = num_tuples(weight, algebra)
    saved = (algebra.multiplies_by_blocks - algebra.stored.multiplies_by_blocks) * first * second
    return saved * prod(weight.shape[2:]) > least * 2 * algebra.dim * (first + second * geometry.groups)


def _decodes_dim(algebra: Algebra, num_rows: int) -> bool:
    """Whether an algebra has few enough components for `decode_linear` to multiply by its table."""
    return algebra.dim <= (GPU.decode_dim_one_row if num_rows == 1 else GPU.decode_dim)


def _saves_multiplies(x: Tensor, algebra: Algebra, num_in: int, num_out: int) -> bool:
    """Whether an algorithm with fewer multiplies is faster than blocks, and accurate enough."""
    dtype, algorithm = precision(x), algebra.bilinear
    if dtype == torch.float16 or prod(x.shape[:-1]) < GPU.bilinear_rows:  # in float16 sums of inputs may overflow
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
