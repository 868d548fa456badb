"""Functions in `functional` that cut or reorder channels: gated linear units and shuffles for tuples."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.functional.arguments import check_groups, num_tuples_on_axis_1
from algebranets.nn.layer import REQUIRED, resolve


def glu(input: Tensor, dim: int = -1, *, algebra: Algebra | str = REQUIRED) -> Tensor:
    """`torch.nn.functional.glu` for tuples: ``value * sigmoid(gate)``, component by component.

    The first half of the tuples are values, the second half are gates.

    Args:
        input: Activations with an even number of tuples on axis ``dim``.
        dim: The channel axis.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x = torch.tensor([1.0, 0.0, 2.0, 100.0])  # the tuples (1, 2) and (0, 100)
    >>> an.nn.functional.glu(x, algebra=an.C)
    tensor([0.5000, 2.0000])
    """
    over = resolve(algebra, "glu", "functional.")
    dim = product.tuple_axis(input, over, dim)
    if input.shape[dim] // over.dim % 2:
        raise ValueError(
            f"axis {dim} must hold an even number of {over.name} tuples, values and then gates; got "
            f"{input.shape[dim] // over.dim}: make its size a multiple of {2 * over.dim}."
        )
    return F.glu(input.unflatten(dim, (over.dim, -1)), dim + 1).flatten(dim, dim + 1)


def pixel_shuffle(
    input: Float[Tensor, "*batch chan height width"], upscale_factor: int, *, algebra: Algebra | str = REQUIRED
) -> Float[Tensor, "*batch _ _ _"]:
    """`torch.nn.functional.pixel_shuffle` for tuples: it turns groups of tuples into pixels of a larger image.

    It computes the same as torch's function, and checks that the output holds whole tuples.

    Args:
        input: Images, (..., channels, height, width).
        upscale_factor: The factor r by which height and width grow. The number of channels is divided by r * r.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.functional.pixel_shuffle(torch.randn(2, 16, 5, 5), 2, algebra=an.H).shape
    torch.Size([2, 4, 10, 10])
    """
    over = resolve(algebra, "pixel_shuffle", "functional.")
    unit = checks.whole("upscale_factor", upscale_factor, least=1) ** 2 * over.dim
    channels, height, width = _image_size(input)
    if channels % unit:
        raise ValueError(
            f"the output must hold whole {over.name} tuples: with upscale_factor={upscale_factor}, the number of "
            f"channels must be a multiple of {upscale_factor}^2 * {over.dim} = {unit}; got {channels}."
        )
    if input.numel() == 0:  # torch's backward fails
        size = (channels // upscale_factor**2, height * upscale_factor, width * upscale_factor)
        return input.reshape(*input.shape[:-3], *size)
    return F.pixel_shuffle(input, upscale_factor)


def pixel_unshuffle(
    input: Float[Tensor, "*batch chan height width"], downscale_factor: int, *, algebra: Algebra | str = REQUIRED
) -> Float[Tensor, "*batch _ _ _"]:
    """`torch.nn.functional.pixel_unshuffle` for tuples: the inverse of `pixel_shuffle`.

    It computes the same as torch's function, and checks that the input holds whole tuples.

    Args:
        input: Images, (..., channels, height, width).
        downscale_factor: The factor r by which height and width shrink. The number of channels is multiplied by r * r.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.functional.pixel_unshuffle(torch.randn(2, 4, 10, 10), 2, algebra=an.H).shape
    torch.Size([2, 16, 5, 5])
    """
    over = resolve(algebra, "pixel_unshuffle", "functional.")
    checks.whole("downscale_factor", downscale_factor, least=1)
    channels, height, width = _image_size(input)
    product.tuple_axis(input, over, -3)
    if height % downscale_factor or width % downscale_factor:
        raise ValueError(
            f"height and width must be multiples of downscale_factor={downscale_factor}; got {height} x {width}."
        )
    if input.numel() == 0:  # torch's function does not change the shape
        size = (channels * downscale_factor**2, height // downscale_factor, width // downscale_factor)
        return input.reshape(*input.shape[:-3], *size)
    return F.pixel_unshuffle(input, downscale_factor)


def channel_shuffle(
    input: Float[Tensor, "batch chan *size"], groups: int, *, algebra: Algebra | str = REQUIRED
) -> Float[Tensor, "batch chan *size"]:
    """`torch.nn.functional.channel_shuffle` for tuples: it interleaves groups of whole tuples.

    The output holds the first tuple of each group, then the second tuple of each group, and so on.

    Args:
        input: Activations with channels on axis 1 and spatial axes after it.
        groups: The number of groups, which must divide the number of tuples.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]).view(1, 8, 1)  # tuples (1, 10), (2, 20), ...
    >>> an.nn.functional.channel_shuffle(x, 2, algebra=an.C).flatten()
    tensor([ 1.,  3.,  2.,  4., 10., 30., 20., 40.])
    """
    over = resolve(algebra, "channel_shuffle", "functional.")
    check_groups("groups", groups, num_tuples_on_axis_1(input, over, least=3), over)
    shuffled = input.unflatten(1, (over.dim, groups, -1)).transpose(2, 3).flatten(1, 3)
    return product.in_format_of(input, shuffled)


def _image_size(input: Tensor) -> tuple[int, int, int]:
    """The number of channels, the height and the width of images."""
    if input.dim() < 3:
        raise ValueError(f"the input must be (..., channels, height, width); got shape {tuple(input.shape)}.")
    channels, height, width = input.shape[-3:]
    return channels, height, width
