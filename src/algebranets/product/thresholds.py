"""The thresholds of lowering "auto", in one table for each kind of device.

They were measured with `algebranets bench` or found by trials. Comments name the rows of ``benchmarks/`` that support
them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """Thresholds on a GPU, measured on an H200."""

    #: The largest number of rows for which `decode_linear` is faster than blocks, on CUDA cores and, in half precision,
    #: on tensor cores. Blocks must build rho(w) first, unless weights are folded. Found by trials over C, H and M2C, at
    #: width 4096 in float32 and at widths 4096 to 16384 in bfloat16. decode-h200.jsonl: C, H and M2C.
    decode_rows: int = 32
    decode_rows_half: int = 128
    #: For folded weights, the largest number of rows times copies, on CUDA cores and on tensor cores. On tensor cores,
    #: more are allowed if there are at most so many multiplies. Found by trials over M2R and M4R, at widths 2048 to
    #: 16384 in bfloat16. decode-h200.jsonl: M2R and M4R.
    decode_folded_rows: int = 4
    decode_folded_rows_half: int = 32
    decode_folded_multiplies: int = 1 << 28
    #: The largest number of components for which `decode_linear` is faster than blocks, unless weights are folded: for
    #: several rows, for one, and in half precision if no block of rho(w) has more rows than the last number. These two
    #: were found by trials at width 8192 with 1 to 32 rows: over diagonal(16), M2H and M4C, `decode_linear` was 1.3 to
    #: 5.4 times as fast as blocks. For one block of 32 rows, compiling a kernel took a minute.
    decode_dim: int = 8
    decode_dim_one_row: int = 16
    decode_dim_half: int = 32
    decode_size: int = 8
    #: `decode_linear` changes the basis in registers for at most so many rows times numbers of the weight times squared
    #: components. For more, changes of basis are passes of their own. Found by trials over clifford(2,0), clifford(3,0)
    #: and C (x) C at widths 4096 and 8192.
    changed_work: int = 1 << 33
    #: For each number that changes of basis move, a convolution must save this many multiplies to be faster in another
    #: basis. Found by trials over clifford(2,0): with 64 channels, which save 72, blocks and parts took the same time;
    #: with 128 channels, which save 144, parts were faster.
    conv_multiplies_a_number: int = 100
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
    #: The cost of multiplying a dense weight, in the same unit, for up to 64 rows. sparse-h200.jsonl: M2R with 8 rows,
    #: where picking takes as long as the dense layer with 80 % zeros at width 4096, and between 80 % and 90 % at 8192.
    dense_cost: int = 500_000
    dense_cost_a_place: float = 1.0
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
    #: The smallest weight, in tuples with zeros, and the largest share of tuples that are not zero, for which torch's
    #: sparse formats are faster than a dense weight over a folded algebra. sparse-cpu.jsonl: M2R at widths 1024 and
    #: 4096; with 90 % zeros, dense is faster for one row and slower for 8 and 64 rows.
    sparse_places: int = 1 << 19
    sparse_share: float = 0.08
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
