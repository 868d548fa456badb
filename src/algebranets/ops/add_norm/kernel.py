"""Kernel of ``add_norm``: the sum of two rows and its layer norm.

``width`` is the number of features, rounded up to a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_norm_fwd_kernel(x, y, weight, bias, total, out, num_features, eps, width: tl.constexpr):
    """Each program computes one row."""
    i = tl.arange(0, width)
    is_feature = i < num_features
    row = tl.program_id(0).to(tl.int64) * num_features
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    scale = tl.load(weight + i, mask=is_feature, other=0).to(dtype)
    offset = tl.load(bias + i, mask=is_feature, other=0).to(dtype)
    t = tl.load(x + row + i, mask=is_feature, other=0).to(dtype)
    t += tl.load(y + row + i, mask=is_feature, other=0).to(dtype)
    tl.store(total + row + i, t.to(total.dtype.element_ty), mask=is_feature)
    t = tl.where(is_feature, t - tl.sum(t, 0) / num_features, 0)
    t *= 1 / tl.sqrt(tl.sum(t * t, 0) / num_features + eps)
    tl.store(out + row + i, (t * scale + offset).to(out.dtype.element_ty), mask=is_feature)
