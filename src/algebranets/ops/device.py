"""Facts about a device that operators need: whether kernels run there, precision, number of programs."""

from __future__ import annotations

from importlib.util import find_spec
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.weak import WeakIdKeyDictionary

#: The number of programs that fill a GPU: nearly two on each of an H200's 132 multiprocessors. Kernels that need more
#: or fewer use a multiple or a fraction of it.
PROGRAMS = 256

_HAS_TRITON = find_spec("triton") is not None

#: The version at which each parameter was last read by a kernel.
_VERSIONS: WeakIdKeyDictionary = WeakIdKeyDictionary()


def is_usable(x: Tensor) -> bool:
    """Whether a Triton kernel can run on the device of ``x``.

    It cannot under torch.func or forward-mode differentiation, which only follow torch's own operators.
    """
    return _has_device(x) and not is_transformed()


def _has_device(x: Tensor) -> bool:
    return x.is_cuda and _HAS_TRITON


def is_transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():  # the compiler handles custom operators itself
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def records_gradients(*tensors: Tensor | None) -> bool:
    """Whether autograd records what is computed from any of ``tensors``."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of ``x``. The meta device has no autocast."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def precision(x: Tensor) -> torch.dtype:
    """The dtype in which torch multiplies ``x``: autocast's if autocast applies, otherwise that of ``x``."""
    if is_autocast(x) and x.dtype != torch.float64:  # which is not cast
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def sums_may_overflow(x: Tensor) -> bool:
    """Whether sums of a few numbers of ``x`` may overflow in the dtype in which torch multiplies it: in float16."""
    return precision(x) == torch.float16


def cast_for_autocast(x: Tensor, *others: Tensor | None) -> list[Any]:
    """``x`` and the other tensors, cast for autocast if it is on. Autocast does not know our operators."""
    if not is_autocast(x):
        return [x, *others]
    dtype = precision(x)
    return [None if t is None else t.to(dtype) for t in (x, *others)]


def sum_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which sums of ``x`` are taken: at least float32."""
    return torch.promote_types(x.dtype, torch.float32)


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of the image ``x`` are innermost in memory."""
    return x.dim() > 3 and x.shape[1] > 1 and x.stride(1) == 1 and prod(x.shape[2:]) > 1


def is_frozen(weight: Tensor) -> bool:
    """Whether a kernel may read ``weight`` before the previous kernel has ended.

    This is safe for a parameter or buffer whose version has not changed since the last call. Any other tensor may be an
    output of the previous kernel. It is always False in a compiled graph, which would not check again, and for a tensor
    that was made in inference mode, which has no version.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or weight.is_inference():
        return False
    if not isinstance(weight, (torch.nn.Parameter, torch.nn.Buffer)):
        return False
    before, _VERSIONS[weight] = _VERSIONS.get(weight), weight._version
    return bool(before == weight._version)


def ceil_div(number: int, by: int) -> int:
    """``number / by``, rounded up. (Outside of kernels, `triton.cdiv` takes ten microseconds.)"""
    return -(-number // by)


def next_power_of_2(number: int) -> int:
    """The smallest power of two that is not less than ``number``.

    >>> [next_power_of_2(n) for n in (1, 2, 3, 8, 9)]
    [1, 2, 4, 8, 16]
    """
    return 1 << max(0, number - 1).bit_length()
